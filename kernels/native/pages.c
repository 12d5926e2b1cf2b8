#include "pages.h"

EXPORT void k_store_window(float *pool, ptrdiff_t dim, const float *kv, ptrdiff_t ldkv,
                           const Batch *b) {
    for (ptrdiff_t t = 0; t < b->tokens; t++) {
        ptrdiff_t position = b->positions[t];
        ptrdiff_t row =
            page_of(b, b->token_seq[t], position) * b->page_size + position % b->page_size;
        memcpy(pool + row * dim, kv + t * ldkv, (size_t)dim * sizeof(float));
    }
}

/* Returns 0, or 2 when an entry lies outside its sequence. */
EXPORT int k_store_entries(float *pool, ptrdiff_t dim, const float *entries, ptrdiff_t count,
                           const int32_t *seq, const int32_t *index, ptrdiff_t m, const Batch *b) {
    for (ptrdiff_t i = 0; i < count; i++) {
        if (seq[i] < 0 || seq[i] >= b->seqs || index[i] < 0 || index[i] >= b->seq_lens[seq[i]] / m)
            return 2;
        memcpy(pool + entry_row(b, seq[i], index[i], b->page_size / m) * dim, entries + i * dim,
               (size_t)dim * sizeof(float));
    }
    return 0;
}

/* Every invariant that the ops rely on. Returns the largest page id in use (-1: none), or
 * -2 query_start, -3 seq_lens, -4 token_seq, -5 positions, -6 page_table. */
EXPORT ptrdiff_t k_check_batch(const Batch *b) {
    ptrdiff_t largest = -1;
    if (b->query_start[0] != 0 || b->query_start[b->seqs] != b->tokens) return -2;
    for (ptrdiff_t seq = 0; seq < b->seqs; seq++) {
        ptrdiff_t first = b->query_start[seq], end = b->query_start[seq + 1],
                  length = b->seq_lens[seq];
        if (end < first || end > b->tokens) return -2;
        if (length < end - first || length > b->max_pages * b->page_size) return -3;
        for (ptrdiff_t t = first; t < end; t++) {
            if (b->token_seq[t] != seq) return -4;
            if (b->positions[t] != length - (end - t)) return -5;
        }
        for (ptrdiff_t i = 0; i * b->page_size < length; i++) {
            int32_t page = b->page_table[seq * b->max_pages + i];
            if (page < 0) return -6;
            if (page > largest) largest = page;
        }
    }
    return largest;
}
