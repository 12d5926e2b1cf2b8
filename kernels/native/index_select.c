/* The indexer: scores of all visible entries, then the best `topk` by a total order (score
 * descending, then lowest index; NaN below every number). Keys are read as they are stored. */
#include "gemm.h"
#include "pages.h"

#include <stdlib.h>

#define TOKENS 32 /* tokens of one sequence that share an unpacked panel of keys */

enum { FP32, BF16, FP8, FP4, INT4 };

typedef struct {
    const void *codes, *scales;
    const float *values; /* of each code: 256 for FP8, 16 for FP4 and INT4 */
    int format;
    ptrdiff_t dim, scales_per_row;
} KeyPages;

static float scale_at(const KeyPages *k, ptrdiff_t row, ptrdiff_t group) {
    ptrdiff_t at = row * k->scales_per_row + group;
    if (k->format != FP4) return ((const float *)k->scales)[at];
    uint8_t exponent = ((const uint8_t *)k->scales)[at];
    return exponent == 255 ? NAN : ldexpf(1.0f, exponent - 127);
}

/* The key at `row`, in fp32; `space` holds it where it must be unpacked. */
static const float *read_key(const KeyPages *k, ptrdiff_t row, float *space) {
    ptrdiff_t dim = k->dim;
    if (k->format == FP32) return (const float *)k->codes + row * dim;
    if (k->format == BF16) {
        const uint16_t *codes = (const uint16_t *)k->codes + row * dim;
        for (ptrdiff_t d = 0; d < dim; d++) {
            uint32_t bits = (uint32_t)codes[d] << 16;
            memcpy(space + d, &bits, 4);
        }
        return space;
    }
    ptrdiff_t width = dim / k->scales_per_row;
    for (ptrdiff_t group = 0; group < k->scales_per_row; group++) {
        float scale = scale_at(k, row, group);
        for (ptrdiff_t d = group * width; d < (group + 1) * width; d++) {
            uint8_t code;
            if (k->format == FP8) code = ((const uint8_t *)k->codes)[row * dim + d];
            else code = ((const uint8_t *)k->codes)[row * (dim / 2) + d / 2] >> (d % 2 * 4) & 15;
            space[d] = k->values[code] * scale;
        }
    }
    return space;
}

/* panel[d][j] = key `first + j`; zero past `count`. space: PANEL rows of dim. */
static void fill_panel(const KeyPages *k, const Batch *b, ptrdiff_t seq, ptrdiff_t per_page,
                       ptrdiff_t first, ptrdiff_t count, float *space, float *panel) {
    const float *keys[PANEL];
    ptrdiff_t dim = k->dim, d = 0;
    memset(space, 0, (size_t)dim * sizeof(float));
    for (ptrdiff_t j = 0; j < PANEL; j++)
        keys[j] = first + j < count
                      ? read_key(k, entry_row(b, seq, first + j, per_page), space + (j + 1) * dim)
                      : space;
    for (; d + VL <= dim; d += VL)
        for (ptrdiff_t j = 0; j < PANEL; j += VL) {
            vf v[VL];
            UNROLL for (int i = 0; i < VL; i++) v[i] = load(keys[j + i] + d);
            transpose(v);
            UNROLL for (int i = 0; i < VL; i++) store(panel + (d + i) * PANEL + j, v[i]);
        }
    for (; d < dim; d++)
        for (ptrdiff_t j = 0; j < PANEL; j++) panel[d * PANEL + j] = keys[j][d];
}

INLINE void add_heads(int rows, const float *q, ptrdiff_t dim, const float *weights,
                      const float *panel, vf sum[2]) {
    vf acc[ROWS][2] = {0};
    micro(rows, q, dim, panel, dim, acc);
    UNROLL for (int h = 0; h < rows; h++) {
        sum[0] += weights[h] * relu(acc[h][0]);
        sum[1] += weights[h] * relu(acc[h][1]);
    }
}

/* scores[j] = sum_h weights[h] * relu(q[h] . key j) for one panel, heads in order. */
static void score_panel(const float *q, ptrdiff_t heads, ptrdiff_t dim, const float *weights,
                        const float *panel, float *scores) {
    vf sum[2] = {0};
    ptrdiff_t h = 0;
    for (; h + ROWS <= heads; h += ROWS) add_heads(ROWS, q + h * dim, dim, weights + h, panel, sum);
    for (; h < heads; h++) add_heads(1, q + h * dim, dim, weights + h, panel, sum);
    store(scores, sum[0]);
    store(scores + VL, sum[1]);
}

/* The k-th largest of n values, 1 <= k <= n; reorders them. */
static float kth_largest(float *v, ptrdiff_t n, ptrdiff_t k) {
    ptrdiff_t low = 0, high = n - 1, want = k - 1;
    while (low < high) {
        float a = v[low], c = v[(low + high) / 2], e = v[high];
        float pivot = a > c ? (c > e ? c : (a > e ? e : a)) : (a > e ? a : (c > e ? e : c));
        ptrdiff_t above = low, i = low, below = high; /* larger | equal | smaller */
        while (i <= below) {
            float x = v[i];
            if (x > pivot) v[i++] = v[above], v[above++] = x;
            else if (x < pivot) v[i] = v[below], v[below--] = x;
            else i++;
        }
        if (want < above) high = above - 1;
        else if (want > below) low = below + 1;
        else return pivot;
    }
    return v[low];
}

typedef struct {
    float *scores, *space; /* [2 * k] each */
    int32_t *index;
    ptrdiff_t count, k;
} Best;

/* Keep the best k, in order of their index: ties at the last place go to the lowest. */
static float prune(Best *best) {
    memcpy(best->space, best->scores, (size_t)best->count * sizeof(float));
    float last = kth_largest(best->space, best->count, best->k);
    ptrdiff_t ties = best->k, kept = 0;
    for (ptrdiff_t i = 0; i < best->count; i++) ties -= best->scores[i] > last;
    for (ptrdiff_t i = 0; i < best->count; i++) {
        float score = best->scores[i];
        if (score > last || (score == last && ties-- > 0)) {
            best->scores[kept] = score;
            best->index[kept++] = best->index[i];
        }
    }
    best->count = kept;
    return last;
}

static void select_top(const float *scores, ptrdiff_t visible, Best *best, int32_t *out) {
    float bar = -INFINITY;
    int full = 0;
    best->count = 0;
    for (ptrdiff_t i = 0; i < visible; i++) {
        float score = scores[i];
        if (score != score) score = -INFINITY;
        if (full && !(score > bar)) continue; /* a later equal score loses to an earlier one */
        best->scores[best->count] = score;
        best->index[best->count++] = (int32_t)i;
        if (best->count == 2 * best->k) bar = prune(best), full = 1;
    }
    if (best->count > best->k) prune(best);
    for (ptrdiff_t i = 0; i < best->k; i++) out[i] = i < best->count ? best->index[i] : -1;
}

/* q: [tokens][heads][dim], already in the keys' basis. Returns 0, or 1 when there is no memory. */
EXPORT int k_index_select(const float *q, ptrdiff_t heads, const float *weights, ptrdiff_t ldw,
                          const void *codes, const void *scales, const float *values, int format,
                          ptrdiff_t dim, ptrdiff_t scales_per_row, ptrdiff_t m, ptrdiff_t topk,
                          const Batch *b, int32_t *out) {
    KeyPages keys = {codes, scales, values, format, dim, scales_per_row};
    ptrdiff_t longest = 0, per_page = b->page_size / m;
    for (ptrdiff_t seq = 0; seq < b->seqs; seq++)
        if (b->seq_lens[seq] > longest) longest = b->seq_lens[seq];
    ptrdiff_t stride = (longest / m + PANEL - 1) / PANEL * PANEL;
    ptrdiff_t panel_size = PANEL * dim;
    float *memory = scratch((size_t)(2 * panel_size + dim + TOKENS * stride + 6 * topk) * sizeof(float));
    if (!memory) return 1;
    float *panel = memory, *space = panel + panel_size, *scores = space + panel_size + dim;
    Best best = {scores + TOKENS * stride, NULL, NULL, 0, topk};
    best.space = best.scores + 2 * topk;
    best.index = (int32_t *)(best.space + 2 * topk);
    for (ptrdiff_t seq = 0; seq < b->seqs; seq++)
        for (ptrdiff_t t = b->query_start[seq]; t < b->query_start[seq + 1]; t += TOKENS) {
            ptrdiff_t end = t + TOKENS < b->query_start[seq + 1] ? t + TOKENS : b->query_start[seq + 1];
            ptrdiff_t count = (b->positions[end - 1] + 1) / m;
            for (ptrdiff_t first = 0; count > topk && first < count; first += PANEL) {
                fill_panel(&keys, b, seq, per_page, first, count, space, panel);
                for (ptrdiff_t i = t; i < end; i++)
                    score_panel(q + i * heads * dim, heads, dim, weights + i * ldw, panel,
                                scores + (i - t) * stride + first);
            }
            for (ptrdiff_t i = t; i < end; i++) {
                ptrdiff_t visible = (b->positions[i] + 1) / m;
                int32_t *row = out + i * topk;
                if (visible > topk) select_top(scores + (i - t) * stride, visible, &best, row);
                else
                    for (ptrdiff_t w = 0; w < topk; w++) row[w] = w < visible ? (int32_t)w : -1;
            }
        }
    return 0;
}
