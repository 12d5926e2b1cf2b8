/* RMS norm of one row and the rotation of its adjacent channel pairs. */
#ifndef KERNELS_NORMS_H
#define KERNELS_NORMS_H

#include "simd.h"

INLINE float sum_squares(const float *x, ptrdiff_t dim) {
    vf a = {0}, b = {0};
    ptrdiff_t i = 0;
    for (; i + 2 * VL <= dim; i += 2 * VL) {
        vf u = load(x + i), v = load(x + i + VL);
        a += u * u;
        b += v * v;
    }
    for (; i < dim; i += VL) {
        vf u = dim - i >= VL ? load(x + i) : load_part(x + i, (int)(dim - i));
        a += u * u;
    }
    return sum_lanes(a + b);
}

/* weight may be NULL; out may be x. */
INLINE void rms_norm(const float *x, ptrdiff_t dim, const float *weight, float eps, float *out) {
    float r = 1.0f / sqrtf(sum_squares(x, dim) / (float)dim + eps);
    if (weight)
        for (ptrdiff_t i = 0; i < dim; i++) out[i] = x[i] * r * weight[i];
    else
        for (ptrdiff_t i = 0; i < dim; i++) out[i] = x[i] * r;
}

/* In place; direction -1 rotates back. */
INLINE void rotate(float *x, ptrdiff_t rope_dim, const float *cosine, const float *sine,
                   float direction) {
    for (ptrdiff_t i = 0; i < rope_dim / 2; i++) {
        float even = x[2 * i], odd = x[2 * i + 1], c = cosine[i], s = sine[i] * direction;
        x[2 * i] = even * c - odd * s;
        x[2 * i + 1] = odd * c + even * s;
    }
}

#endif
