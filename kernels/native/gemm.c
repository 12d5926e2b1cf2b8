#include "gemm.h"

#include <stdlib.h>
#if defined(__GLIBC__)
#include <malloc.h>
#endif

/* Each op returns a new tensor. By default the C library gives large blocks back to the system at
 * once and asks again at the next op, and each page of them is cleared anew: about 8 % of a
 * prefill. */
EXPORT void k_keep_memory(void) {
#if defined(__GLIBC__)
    mallopt(M_MMAP_THRESHOLD, 256 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}

void *scratch(size_t bytes) {
    static __thread void *block = NULL;
    static __thread size_t size = 0;
    if (bytes > size) {
        free(block);
        size = (bytes + bytes / 2 + 4095) / 4096 * 4096;
        block = aligned_alloc(64, size);
        if (!block) size = 0;
    }
    return block;
}

ptrdiff_t packed_size(ptrdiff_t n, ptrdiff_t k) { return (n + PANEL - 1) / PANEL * PANEL * k; }

void pack(const float *w, ptrdiff_t n, ptrdiff_t k, ptrdiff_t row_stride, float *packed) {
    for (ptrdiff_t first = 0; first < n; first += PANEL, packed += PANEL * k)
        for (ptrdiff_t j = 0; j < PANEL; j++)
            for (ptrdiff_t i = 0; i < k; i++)
                packed[i * PANEL + j] = first + j < n ? w[(first + j) * row_stride + i] : 0.0f;
}

INLINE void tile(int rows, const float *a, ptrdiff_t lda, const float *panel, ptrdiff_t k, float *c,
                 ptrdiff_t ldc, ptrdiff_t width) {
    vf acc[ROWS][2] = {0};
    micro(rows, a, lda, panel, k, acc);
    UNROLL
    for (int i = 0; i < rows; i++) {
        if (width >= PANEL) {
            store(c + i * ldc, acc[i][0]);
            store(c + i * ldc + VL, acc[i][1]);
        } else {
            float row[PANEL];
            store(row, acc[i][0]);
            store(row + VL, acc[i][1]);
            memcpy(c + i * ldc, row, (size_t)width * sizeof(float));
        }
    }
}

/* One row: four panels at once, since one alone would wait for its own additions. */
INLINE void tile_row(const float *a, const float *panel, ptrdiff_t k, float *c) {
    vf acc[4][2] = {0};
    for (ptrdiff_t i = 0; i < k; i++) {
        float s = a[i];
        UNROLL
        for (int p = 0; p < 4; p++) {
            const float *b = panel + p * PANEL * k + i * PANEL;
            acc[p][0] += s * load(b);
            acc[p][1] += s * load(b + VL);
        }
    }
    UNROLL
    for (int p = 0; p < 4; p++) {
        store(c + p * PANEL, acc[p][0]);
        store(c + p * PANEL + VL, acc[p][1]);
    }
}

static void rest(ptrdiff_t rows, const float *a, ptrdiff_t lda, const float *panel, ptrdiff_t k,
                 float *c, ptrdiff_t ldc, ptrdiff_t width) {
    switch (rows) {
    case 1: tile(1, a, lda, panel, k, c, ldc, width); break;
    case 2: tile(2, a, lda, panel, k, c, ldc, width); break;
    case 3: tile(3, a, lda, panel, k, c, ldc, width); break;
#if ROWS == 8
    case 4: tile(4, a, lda, panel, k, c, ldc, width); break;
    case 5: tile(5, a, lda, panel, k, c, ldc, width); break;
    case 6: tile(6, a, lda, panel, k, c, ldc, width); break;
    case 7: tile(7, a, lda, panel, k, c, ldc, width); break;
#endif
    }
}

void gemm(const float *a, ptrdiff_t lda, ptrdiff_t rows, const float *packed, ptrdiff_t k,
          ptrdiff_t n, float *c, ptrdiff_t ldc) {
    ptrdiff_t first = 0;
    if (rows == 1)
        for (; first + 4 * PANEL <= n; first += 4 * PANEL)
            tile_row(a, packed + first * k, k, c + first);
    for (; first < n; first += PANEL) {
        const float *panel = packed + first * k;
        ptrdiff_t row = 0;
        for (; row + ROWS <= rows; row += ROWS)
            tile(ROWS, a + row * lda, lda, panel, k, c + row * ldc + first, ldc, n - first);
        rest(rows - row, a + row * lda, lda, panel, k, c + row * ldc + first, ldc, n - first);
    }
}

EXPORT ptrdiff_t k_packed_size(ptrdiff_t n, ptrdiff_t k) { return packed_size(n, k); }

EXPORT void k_pack(const float *w, ptrdiff_t n, ptrdiff_t k, ptrdiff_t row_stride, float *packed) {
    pack(w, n, k, row_stride, packed);
}

EXPORT void k_linear(const float *x, ptrdiff_t ldx, ptrdiff_t rows, const float *packed,
                     ptrdiff_t k, ptrdiff_t n, float *out) {
    gemm(x, ldx, rows, packed, k, n, out, n);
}
