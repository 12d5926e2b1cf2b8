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
            UNROLL
            for (int i = 0; i < VL; i++) v[i] = load(keys[j + i] + d);
            transpose(v);
            UNROLL
            for (int i = 0; i < VL; i++) store(panel + (d + i) * PANEL + j, v[i]);
        }
    for (; d < dim; d++)
        for (ptrdiff_t j = 0; j < PANEL; j++) panel[d * PANEL + j] = keys[j][d];
}

INLINE void add_heads(int rows, const float *q, ptrdiff_t dim, const float *weights,
                      const float *panel, vf sum[2]) {
    vf acc[ROWS][2] = {0};
    micro(rows, q, dim, panel, dim, acc);
    UNROLL
    for (int h = 0; h < rows; h++) {
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

/* Scores become integers of the same order, in place; NaN is -infinity. (A sum that began with 0
 * is never -0, so equal scores have equal bits.) */
static void to_keys(float *scores, ptrdiff_t count, ptrdiff_t padded) {
    for (ptrdiff_t i = count; i < padded; i++) scores[i] = -INFINITY;
    for (ptrdiff_t i = 0; i < padded; i += VL) {
        vf score = load(scores + i);
        vi bits = (vi)choose(score == score, score, splat(-INFINITY));
        store(scores + i, (vf)(bits ^ ((bits >> 31) & INT32_MAX)));
    }
    const int32_t last = INT32_MIN; /* below -infinity */
    for (ptrdiff_t i = count; i < padded; i++) memcpy(scores + i, &last, 4);
}

static ptrdiff_t count_from(const float *keys, ptrdiff_t padded, int32_t bar) {
    vi found = {0}, bars = found + bar;
    for (ptrdiff_t i = 0; i < padded; i += VL) found -= (vi)load(keys + i) >= bars;
    ptrdiff_t sum = 0;
    for (int lane = 0; lane < VL; lane++) sum += found[lane];
    return sum;
}

/* The largest bar that at least k < count keys reach, or any that exactly k reach: by bisection,
 * since counting has no branch that depends on a score. */
static int32_t find_bar(const float *keys, ptrdiff_t padded, ptrdiff_t k) {
    vi top = (vi)load(keys), low = (vi){0} + INT32_MAX;
    for (ptrdiff_t i = 0; i < padded; i += VL) {
        vi key = (vi)load(keys + i);
        top = (vi)choose(key > top, (vf)key, (vf)top);
        low = (vi)choose(key < low, (vf)key, (vf)low);
    }
    int64_t from = low[0], to = top[0];
    for (int lane = 1; lane < VL; lane++) {
        if (low[lane] < from) from = low[lane];
        if (top[lane] > to) to = top[lane];
    }
    while (from < to) {
        int64_t middle = from + (to - from + 1) / 2;
        ptrdiff_t count = count_from(keys, padded, (int32_t)middle);
        if (count == k) return (int32_t)middle;
        if (count > k) from = middle;
        else to = middle - 1;
    }
    return (int32_t)from;
}

/* Destroys the scores; padded to a multiple of VL there must be room. visible > k. */
static void select_top(float *scores, ptrdiff_t visible, ptrdiff_t k, int32_t *out) {
    ptrdiff_t padded = (visible + VL - 1) / VL * VL, kept = 0;
    to_keys(scores, visible, padded);
    int32_t bar = find_bar(scores, padded, k);
    ptrdiff_t ties = bar == INT32_MAX ? k : k - count_from(scores, padded, bar + 1);
    for (ptrdiff_t i = 0; kept < k; i++) {
        int32_t key;
        memcpy(&key, scores + i, 4);
        if (key > bar || (key == bar && ties-- > 0)) out[kept++] = (int32_t)i;
    }
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
    float *memory = scratch((size_t)(2 * panel_size + dim + TOKENS * stride) * sizeof(float));
    if (!memory) return 1;
    float *panel = memory, *space = panel + panel_size, *scores = space + panel_size + dim;
    for (ptrdiff_t seq = 0; seq < b->seqs; seq++)
        for (ptrdiff_t t = b->query_start[seq]; t < b->query_start[seq + 1]; t += TOKENS) {
            ptrdiff_t end =
                t + TOKENS < b->query_start[seq + 1] ? t + TOKENS : b->query_start[seq + 1];
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
                if (visible > topk) select_top(scores + (i - t) * stride, visible, topk, row);
                else
                    for (ptrdiff_t w = 0; w < topk; w++) row[w] = w < visible ? (int32_t)w : -1;
            }
        }
    return 0;
}
