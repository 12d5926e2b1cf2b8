/* c = a @ w.T with w packed in panels of PANEL rows: [N / PANEL][K][PANEL], zero-padded.
 * Each output is one chain of fused multiply-adds over k in order, for any number of rows. */
#ifndef KERNELS_GEMM_H
#define KERNELS_GEMM_H

#include "simd.h"

#define PANEL (2 * VL)
#if MANY_REGISTERS
#define ROWS 8
#else
#define ROWS 4
#endif

/* acc[i][j] += a[i] . panel, for `rows` rows of a (a constant), `panels` adjacent panels. */
INLINE void micro(int rows, const float *a, ptrdiff_t lda, const float *panel, ptrdiff_t k_count,
                  vf acc[][2]) {
    for (ptrdiff_t k = 0; k < k_count; k++) {
        vf b0 = load(panel), b1 = load(panel + VL);
        panel += PANEL;
        UNROLL
        for (int i = 0; i < rows; i++) {
            float s = a[i * lda + k];
            acc[i][0] += s * b0;
            acc[i][1] += s * b1;
        }
    }
}

ptrdiff_t packed_size(ptrdiff_t n, ptrdiff_t k);
void pack(const float *w, ptrdiff_t n, ptrdiff_t k, ptrdiff_t row_stride, float *packed);
void gemm(const float *a, ptrdiff_t lda, ptrdiff_t rows, const float *packed, ptrdiff_t k,
          ptrdiff_t n, float *c, ptrdiff_t ldc);

#endif
