/* Attention of one token at a time, straight from the pages: its keys are a list of row pointers
 * (window rows, then entries), so a token's result is the same in prefill and in decode. */
#include "pages.h"

#define HEADS 4           /* heads that share a pass over the keys */
#define KEYS (VL / HEADS) /* keys whose scores fill one vector */
#if MANY_REGISTERS
#define BLOCKS 4 /* vectors of output channels held for each head */
#else
#define BLOCKS 2
#endif

/* scores[i][h] = q[h] . rows[i], for count rows (a multiple of KEYS). */
static void score_rows(const float *const q[HEADS], const float *const *rows, ptrdiff_t count,
                       ptrdiff_t dim, float scale, float *scores) {
    ptrdiff_t whole = dim / VL * VL;
    for (ptrdiff_t first = 0; first < count; first += KEYS) {
        vf acc[VL] = {0};
        for (ptrdiff_t d = 0; d < whole; d += VL) {
            vf head[HEADS];
            UNROLL
            for (int h = 0; h < HEADS; h++) head[h] = load(q[h] + d);
            UNROLL
            for (int i = 0; i < KEYS; i++) {
                vf key = load(rows[first + i] + d);
                UNROLL
                for (int h = 0; h < HEADS; h++) acc[i * HEADS + h] += head[h] * key;
            }
        }
        if (whole < dim)
            for (int i = 0; i < KEYS; i++)
                for (int h = 0; h < HEADS; h++)
                    acc[i * HEADS + h] += load_part(q[h] + whole, (int)(dim - whole)) *
                                          load_part(rows[first + i] + whole, (int)(dim - whole));
        store(scores + first * HEADS, sum_each(acc) * scale);
    }
}

/* Scores become weights, one softmax a head with its sink; `padded` - `count` rows weigh 0. */
static void softmax_rows(float *scores, ptrdiff_t count, ptrdiff_t padded,
                         const float sink[HEADS]) {
    float lanes[VL];
    for (int i = 0; i < VL; i++) lanes[i] = sink[i % HEADS];
    for (ptrdiff_t i = count * HEADS; i < padded * HEADS; i++) scores[i] = -INFINITY;
    vf sinks = load(lanes), top = sinks, sum = {0};
    for (ptrdiff_t i = 0; i < padded * HEADS; i += VL) top = vmax(load(scores + i), top);
    store(lanes, top);
    for (int i = HEADS; i < VL; i++)
        if (lanes[i] > lanes[i % HEADS]) lanes[i % HEADS] = lanes[i];
    for (int i = HEADS; i < VL; i++) lanes[i] = lanes[i % HEADS];
    top = load(lanes);
    for (ptrdiff_t i = 0; i < padded * HEADS; i += VL) {
        vf weight = vexp(load(scores + i) - top);
        sum += weight;
        store(scores + i, weight);
    }
    store(lanes, sum);
    for (int i = HEADS; i < VL; i++) lanes[i % HEADS] += lanes[i];
    for (int i = HEADS; i < VL; i++) lanes[i] = lanes[i % HEADS];
    vf scale = 1.0f / (load(lanes) + vexp(sinks - top));
    for (ptrdiff_t i = 0; i < padded * HEADS; i += VL) store(scores + i, load(scores + i) * scale);
}

/* out[h][d] = sum_i weights[i][h] * rows[i][d] for `blocks` (a constant) vectors of channels. */
INLINE void mix_block(int blocks, const float *weights, const float *const *rows, ptrdiff_t count,
                      ptrdiff_t d, int lanes, float *const out[HEADS], int heads) {
    vf acc[HEADS][BLOCKS] = {0};
    for (ptrdiff_t i = 0; i < count; i++) UNROLL
    for (int block = 0; block < blocks; block++) {
        const float *p = rows[i] + d + block * VL;
        vf value = lanes == VL ? load(p) : load_part(p, lanes);
        UNROLL
        for (int h = 0; h < HEADS; h++) acc[h][block] += weights[i * HEADS + h] * value;
    }
    UNROLL
    for (int h = 0; h < HEADS; h++)
        if (h < heads) {
            UNROLL
            for (int block = 0; block < blocks; block++) {
                if (lanes == VL) store(out[h] + d + block * VL, acc[h][block]);
                else store_part(out[h] + d + block * VL, acc[h][block], lanes);
            }
        }
}

static void mix_rows(const float *weights, const float *const *rows, ptrdiff_t count, ptrdiff_t dim,
                     float *const out[HEADS], int heads) {
    ptrdiff_t d = 0;
    for (; d + BLOCKS * VL <= dim; d += BLOCKS * VL)
        mix_block(BLOCKS, weights, rows, count, d, VL, out, heads);
    for (; d + VL <= dim; d += VL) mix_block(1, weights, rows, count, d, VL, out, heads);
    if (d < dim) mix_block(1, weights, rows, count, d, (int)(dim - d), out, heads);
}

typedef struct {
    const float *window_pool, *entries_pool; /* entries_pool: NULL when the layer has none */
    const int32_t *selected;                 /* NULL: every visible entry */
    ptrdiff_t window, m, topk, dim;
} Keys;

/* Appends rows first .. end - 1 of a sequence whose pages hold `per_page` rows each. */
static ptrdiff_t list_run(const float *pool, const int32_t *pages, ptrdiff_t per_page,
                          ptrdiff_t dim, ptrdiff_t first, ptrdiff_t end, const float **rows) {
    ptrdiff_t count = 0;
    for (ptrdiff_t page = first / per_page; first < end; page++) {
        ptrdiff_t stop = (page + 1) * per_page < end ? (page + 1) * per_page : end;
        const float *row = pool + (pages[page] * per_page + first - page * per_page) * dim;
        for (; first < stop; first++, row += dim) rows[count++] = row;
    }
    return count;
}

/* The rows that token t reads, in order; returns how many. */
static ptrdiff_t list_rows(const Keys *k, const Batch *b, ptrdiff_t t, const float **rows) {
    ptrdiff_t position = b->positions[t];
    const int32_t *pages = b->page_table + b->token_seq[t] * b->max_pages;
    ptrdiff_t first = position + 1 > k->window ? position + 1 - k->window : 0;
    ptrdiff_t count =
        list_run(k->window_pool, pages, b->page_size, k->dim, first, position + 1, rows);
    if (!k->entries_pool) return count;
    ptrdiff_t visible = (position + 1) / k->m, per_page = b->page_size / k->m;
    if (!k->selected)
        return count + list_run(k->entries_pool, pages, per_page, k->dim, 0, visible, rows + count);
    for (ptrdiff_t i = 0; i < k->topk; i++) {
        int32_t w = k->selected[t * k->topk + i];
        if (w < 0 || w >= visible) continue;
        uint32_t page = (uint32_t)w / (uint32_t)per_page, slot = (uint32_t)w % (uint32_t)per_page;
        rows[count++] = k->entries_pool + (pages[page] * per_page + slot) * k->dim;
    }
    return count;
}

/* Returns 0, 1: no memory, 2: a selected entry that is neither -1 nor in the pages of the table. */
EXPORT int k_sparse_attention(const float *q, ptrdiff_t ldq, ptrdiff_t heads, ptrdiff_t dim,
                              const float *window_pool, const float *entries_pool,
                              const int32_t *selected, ptrdiff_t topk, const float *sinks,
                              ptrdiff_t window, ptrdiff_t m, float scale, const Batch *b,
                              float *out) {
    Keys keys = {window_pool, entries_pool, selected, window, m, topk, dim};
    if (selected) {
        int32_t least = -1, most_of = -1;
        for (ptrdiff_t i = 0; i < b->tokens * topk; i++) {
            if (selected[i] < least) least = selected[i];
            if (selected[i] > most_of) most_of = selected[i];
        }
        if (least < -1 || most_of >= b->max_pages * (b->page_size / m)) return 2;
    }
    ptrdiff_t longest = 0;
    for (ptrdiff_t seq = 0; seq < b->seqs; seq++)
        if (b->seq_lens[seq] > longest) longest = b->seq_lens[seq];
    ptrdiff_t most = window + (entries_pool ? (selected ? topk : longest / m) : 0) + KEYS;
    char *memory = scratch((size_t)most * (sizeof(float *) + HEADS * sizeof(float)) + 64);
    if (!memory) return 1;
    const float **rows = (const float **)memory;
    float *scores = (float *)(memory + (size_t)most * sizeof(float *));
    for (ptrdiff_t t = 0; t < b->tokens; t++) {
        ptrdiff_t count = list_rows(&keys, b, t, rows), padded = (count + KEYS - 1) / KEYS * KEYS;
        for (ptrdiff_t i = count; i < padded; i++) rows[i] = rows[0];
        for (ptrdiff_t first = 0; first < heads; first += HEADS) {
            const float *qh[HEADS];
            float *oh[HEADS], sink[HEADS];
            for (int h = 0; h < HEADS; h++) {
                ptrdiff_t head = first + h < heads ? first + h : heads - 1;
                qh[h] = q + t * ldq + head * dim;
                oh[h] = out + (t * heads + head) * dim;
                sink[h] = sinks[head];
            }
            score_rows(qh, rows, padded, dim, scale, scores);
            softmax_rows(scores, count, padded, sink);
            mix_rows(scores, rows, count, dim, oh,
                     (int)(heads - first < HEADS ? heads - first : HEADS));
        }
    }
    return 0;
}
