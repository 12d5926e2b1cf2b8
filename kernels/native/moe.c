/* Mixture of experts. Rows of one expert are gathered, multiplied by the packed weights in blocks,
 * and added to their tokens in ascending expert id: the order that every token sees. */
#include "gemm.h"
#include "pages.h"

#define BLOCK 64 /* rows at once: input, activation and output stay in the second-level cache */

/* up := silu(min(gate, limit)) * clamp(up, -limit, limit) * weight; limit <= 0: no clamp */
static void swiglu(const float *gate, float *up, ptrdiff_t width, float limit, float weight) {
    for (ptrdiff_t i = 0; i < width; i += VL) {
        int lanes = width - i < VL ? (int)(width - i) : VL;
        vf g = lanes == VL ? load(gate + i) : load_part(gate + i, lanes);
        vf u = lanes == VL ? load(up + i) : load_part(up + i, lanes);
        if (limit > 0.0f) {
            vf high = splat(limit);
            g = choose(g > high, high, g);
            u = choose(u > high, high, choose(u < -high, -high, u));
        }
        u = g / (1.0f + vexp(-g)) * u * weight;
        if (lanes == VL) store(up + i, u);
        else store_part(up + i, u, lanes);
    }
}

/* k largest of n scores, best first, ties to the lowest index; NaN ranks last. */
static void top_experts(float *score, ptrdiff_t n, ptrdiff_t k, int32_t *ids) {
    for (ptrdiff_t i = 0; i < k; i++) {
        ptrdiff_t best = -1;
        for (ptrdiff_t e = 0; e < n; e++) {
            int taken = 0;
            for (ptrdiff_t j = 0; j < i; j++) taken |= ids[j] == e;
            if (!taken && (best < 0 || score[e] > score[best] ||
                           (score[best] != score[best] && score[e] == score[e])))
                best = e;
        }
        ids[i] = (int32_t)best;
    }
}

static float score_of(float logit) {
    return sqrtf((logit > 0.0f ? logit : 0.0f) + log1pf(expf(-fabsf(logit))));
}

/* table: [vocab][topk] expert ids by token id, or NULL. Returns 0, 1: no memory, 2: a token id
 * outside the table, an expert id outside 0 .. experts - 1, or NaN in the bias. */
EXPORT int k_route(const float *x, ptrdiff_t ldx, const float *gate, ptrdiff_t experts,
                   ptrdiff_t hidden, const float *bias, const int32_t *table, ptrdiff_t vocab,
                   ptrdiff_t topk, float scaling, const Batch *b, int32_t *ids, float *weights) {
    float *score = scratch((size_t)(BLOCK + 1) * (size_t)experts * sizeof(float));
    if (!score) return 1;
    float *ranked = score + BLOCK * experts;
    for (ptrdiff_t e = 0; bias && e < experts; e++)
        if (bias[e] != bias[e]) return 2;
    for (ptrdiff_t t = 0; t < b->tokens; t++) {
        ptrdiff_t row = t % BLOCK;
        if (row == 0)
            gemm(x + t * ldx, ldx, b->tokens - t < BLOCK ? b->tokens - t : BLOCK, gate, hidden,
                 experts, score, experts);
        float *s = score + row * experts, sum = 0.0f;
        for (ptrdiff_t e = 0; e < experts; e++) {
            s[e] = score_of(s[e]);
            ranked[e] = bias ? s[e] + bias[e] : s[e];
        }
        if (table) {
            ptrdiff_t id = b->token_ids[t];
            if (id < 0 || id >= vocab) return 2;
            memcpy(ids + t * topk, table + id * topk, (size_t)topk * sizeof(int32_t));
        } else {
            top_experts(ranked, experts, topk, ids + t * topk);
        }
        for (ptrdiff_t i = 0; i < topk; i++) {
            int32_t e = ids[t * topk + i];
            if (e < 0 || e >= experts) return 2;
            sum += s[e];
        }
        for (ptrdiff_t i = 0; i < topk; i++)
            weights[t * topk + i] = s[ids[t * topk + i]] / (sum + 1e-20f) * scaling;
    }
    return 0;
}

/* hidden state of one expert for `rows` rows of `a`; gate and up are packed one after the other */
static void expert_block(const float *a, ptrdiff_t lda, ptrdiff_t rows, ptrdiff_t hidden,
                         const float *gate, const float *up, const float *down, ptrdiff_t inner,
                         float limit, const float *weight, float *act, float *out, ptrdiff_t ldo) {
    gemm(a, lda, rows, gate, hidden, inner, act, inner);
    float *u = act + BLOCK * inner;
    gemm(a, lda, rows, up, hidden, inner, u, inner);
    for (ptrdiff_t i = 0; i < rows; i++)
        swiglu(act + i * inner, u + i * inner, inner, limit, weight ? weight[i] : 1.0f);
    gemm(u, inner, rows, down, inner, hidden, out, ldo);
}

EXPORT int k_shared_expert(const float *x, ptrdiff_t ldx, ptrdiff_t tokens, ptrdiff_t hidden,
                           const float *gate, const float *up, const float *down, ptrdiff_t inner,
                           float limit, float *out) {
    float *act = scratch((size_t)(2 * BLOCK * inner) * sizeof(float));
    if (!act) return 1;
    for (ptrdiff_t t = 0; t < tokens; t += BLOCK)
        expert_block(x + t * ldx, ldx, tokens - t < BLOCK ? tokens - t : BLOCK, hidden, gate, up,
                     down, inner, limit, NULL, act, out + t * hidden, hidden);
    return 0;
}

/* gate_up: per expert the packed gate, then the packed up rows; down: packed per expert.
 * Returns 0, 1: no memory, 2: an expert id outside 0 .. experts - 1. */
EXPORT int k_experts(const float *x, ptrdiff_t ldx, ptrdiff_t tokens, ptrdiff_t hidden,
                     const int32_t *ids, const float *weights, ptrdiff_t topk, const float *gate_up,
                     const float *down, ptrdiff_t experts, ptrdiff_t inner, float limit,
                     float *out) {
    ptrdiff_t pairs = tokens * topk, half = packed_size(inner, hidden);
    size_t floats = (size_t)BLOCK * (size_t)(2 * hidden + 2 * inner + 1);
    char *memory =
        scratch(floats * sizeof(float) + (size_t)(pairs + experts + 1) * sizeof(ptrdiff_t));
    if (!memory) return 1;
    ptrdiff_t *start = (ptrdiff_t *)memory, *order = start + experts + 1;
    float *rows = (float *)(order + pairs), *act = rows + BLOCK * hidden,
          *made = act + 2 * BLOCK * inner;
    float *weight = made + BLOCK * hidden;
    memset(start, 0, (size_t)(experts + 1) * sizeof(ptrdiff_t));
    for (ptrdiff_t i = 0; i < pairs; i++) {
        if (ids[i] < 0 || ids[i] >= experts) return 2;
        start[ids[i] + 1]++;
    }
    for (ptrdiff_t e = 0; e < experts; e++) start[e + 1] += start[e];
    for (ptrdiff_t i = 0; i < pairs; i++) order[start[ids[i]]++] = i; /* start[e] is now e's end */
    memset(out, 0, (size_t)(tokens * hidden) * sizeof(float));
    for (ptrdiff_t e = 0, first = 0; e < experts; first = start[e], e++)
        for (; first < start[e]; first += BLOCK) {
            ptrdiff_t count = start[e] - first < BLOCK ? start[e] - first : BLOCK;
            for (ptrdiff_t i = 0; i < count; i++) {
                ptrdiff_t pair = order[first + i];
                weight[i] = weights[pair];
                memcpy(rows + i * hidden, x + pair / topk * ldx, (size_t)hidden * sizeof(float));
            }
            const float *gate = gate_up + 2 * half * e;
            expert_block(rows, hidden, count, hidden, gate, gate + half,
                         down + e * packed_size(hidden, inner), inner, limit, weight, act, made,
                         hidden);
            for (ptrdiff_t i = 0; i < count; i++) {
                float *target = out + order[first + i] / topk * hidden;
                for (ptrdiff_t d = 0; d < hidden; d++) target[d] += made[i * hidden + d];
            }
        }
    return 0;
}
