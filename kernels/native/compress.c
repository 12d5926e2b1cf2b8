/* Compressors: a softmax per channel over a window's slots, then RMS norm and rotation.
 * A slot is a row of this batch, or a row of the ring for tokens before it. */
#include "norms.h"
#include "pages.h"

#define MAX_SLOTS 256

typedef struct {
    const float *kv[MAX_SLOTS], *gate[MAX_SLOTS], *ape[MAX_SLOTS];
    ptrdiff_t count;
} Slots;

INLINE vf part(const float *p, ptrdiff_t left) {
    return left >= VL ? load(p) : load_part(p, (int)left);
}

/* Softmax over slots, channel by channel; three passes over rows that lie in cache. */
static void pool_slots(const Slots *s, ptrdiff_t dim, float *out) {
    for (ptrdiff_t d = 0; d < dim; d += VL) {
        ptrdiff_t left = dim - d;
        vf top = part(s->gate[0] + d, left) + part(s->ape[0] + d, left);
        for (ptrdiff_t i = 1; i < s->count; i++)
            top = vmax(part(s->gate[i] + d, left) + part(s->ape[i] + d, left), top);
        vf sum = {0}, value = {0};
        for (ptrdiff_t i = 0; i < s->count; i++) {
            vf weight = vexp(part(s->gate[i] + d, left) + part(s->ape[i] + d, left) - top);
            sum += weight;
            value += weight * part(s->kv[i] + d, left);
        }
        value = value / sum;
        if (left >= VL) store(out + d, value);
        else store_part(out + d, value, (int)left);
    }
}

typedef struct {
    const float *kv, *gate;
    ptrdiff_t ldkv, ldgate, channels, rows; /* rows of a page's ring */
    const float *ring;
} Source;

/* Slot `i` := channels from `from` of the token at `position` of sequence `seq`. */
INLINE void set_slot(Slots *slots, ptrdiff_t i, const Source *s, const Batch *b, ptrdiff_t seq,
                     ptrdiff_t position, ptrdiff_t from) {
    ptrdiff_t first = b->query_start[seq];
    ptrdiff_t start = b->seq_lens[seq] - (b->query_start[seq + 1] - first);
    if (position >= start) {
        slots->kv[i] = s->kv + (first + position - start) * s->ldkv + from;
        slots->gate[i] = s->gate + (first + position - start) * s->ldgate + from;
    } else {
        const float *row =
            s->ring + (page_of(b, seq, position) * s->rows + position % s->rows) * 2 * s->channels;
        slots->kv[i] = row + from;
        slots->gate[i] = row + s->channels + from;
    }
}

/* Only the rows that survive in each page: the last `rows` of it. */
static void update_ring(const Source *s, float *ring, const Batch *b) {
    for (ptrdiff_t t = 0; t < b->tokens; t++) {
        ptrdiff_t position = b->positions[t], seq = b->token_seq[t];
        ptrdiff_t end = (position / b->page_size + 1) * b->page_size;
        if (b->seq_lens[seq] < end) end = b->seq_lens[seq];
        if (position + s->rows < end) continue;
        float *row =
            ring + (page_of(b, seq, position) * s->rows + position % s->rows) * 2 * s->channels;
        memcpy(row, s->kv + t * s->ldkv, (size_t)s->channels * sizeof(float));
        memcpy(row + s->channels, s->gate + t * s->ldgate, (size_t)s->channels * sizeof(float));
    }
}

/* Writes entries in the order of sequences and windows; the caller has counted them. */
EXPORT void k_compress(const float *kv, ptrdiff_t ldkv, const float *gate, ptrdiff_t ldgate,
                       float *ring, const float *ape, const float *norm_weight, ptrdiff_t dim,
                       float eps, ptrdiff_t m, int overlap, ptrdiff_t rope_dim, const float *cosine,
                       const float *sine, const Batch *b, float *entries, int32_t *entry_seq,
                       int32_t *entry_index) {
    ptrdiff_t channels = overlap ? 2 * dim : dim;
    Source source = {kv, gate, ldkv, ldgate, channels, overlap ? 2 * m : m, ring};
    for (ptrdiff_t seq = 0; seq < b->seqs; seq++) {
        ptrdiff_t end = b->seq_lens[seq];
        ptrdiff_t start = end - (b->query_start[seq + 1] - b->query_start[seq]);
        for (ptrdiff_t w = start / m; w < end / m; w++, entries += dim) {
            Slots slots;
            slots.count = 0;
            for (ptrdiff_t j = 0; overlap && w > 0 && j < m; j++) {
                slots.ape[slots.count] = ape + j * channels;
                set_slot(&slots, slots.count++, &source, b, seq, (w - 1) * m + j, 0);
            }
            for (ptrdiff_t j = 0; j < m; j++) {
                ptrdiff_t from = overlap ? dim : 0;
                slots.ape[slots.count] = ape + j * channels + from;
                set_slot(&slots, slots.count++, &source, b, seq, w * m + j, from);
            }
            pool_slots(&slots, dim, entries);
            rms_norm(entries, dim, norm_weight, eps, entries);
            rotate(entries + dim - rope_dim, rope_dim, cosine + w * m * (rope_dim / 2),
                   sine + w * m * (rope_dim / 2), 1.0f);
            *entry_seq++ = (int32_t)seq;
            *entry_index++ = (int32_t)w;
        }
    }
    update_ring(&source, ring, b);
}
