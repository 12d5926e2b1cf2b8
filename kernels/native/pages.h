/* Where a batch's state lies: the fields of PagedBatch that ops read. */
#ifndef KERNELS_PAGES_H
#define KERNELS_PAGES_H

#include "simd.h"

typedef struct {
    const int32_t *positions;   /* [tokens] */
    const int32_t *token_seq;   /* [tokens] */
    const int32_t *page_table;  /* [seqs][max_pages] */
    const int32_t *query_start; /* [seqs + 1] */
    const int32_t *seq_lens;    /* [seqs] */
    const int32_t *token_ids;   /* [tokens] */
    ptrdiff_t tokens, seqs, max_pages, page_size;
} Batch;

INLINE ptrdiff_t page_of(const Batch *b, ptrdiff_t seq, ptrdiff_t position) {
    return b->page_table[seq * b->max_pages + position / b->page_size];
}

/* Row of entry `w` (rate m) in a pool flattened to [P * (page_size / m)]. */
INLINE ptrdiff_t entry_row(const Batch *b, ptrdiff_t seq, ptrdiff_t w, ptrdiff_t per_page) {
    return b->page_table[seq * b->max_pages + w / per_page] * per_page + w % per_page;
}

#endif
