#include "norms.h"

EXPORT void k_rms_norm(const float *x, ptrdiff_t ldx, ptrdiff_t rows, ptrdiff_t dim,
                       const float *weight, float eps, float *out) {
    for (ptrdiff_t row = 0; row < rows; row++)
        rms_norm(x + row * ldx, dim, weight, eps, out + row * dim);
}

EXPORT void k_rope(const float *x, ptrdiff_t ldx, ptrdiff_t tokens, ptrdiff_t heads, ptrdiff_t dim,
                   const float *cosine, const float *sine, ptrdiff_t rope_dim, int inverse,
                   float *out) {
    for (ptrdiff_t t = 0; t < tokens; t++)
        for (ptrdiff_t h = 0; h < heads; h++, out += dim) {
            memcpy(out, x + t * ldx + h * dim, (size_t)dim * sizeof(float));
            rotate(out + dim - rope_dim, rope_dim, cosine + t * (rope_dim / 2),
                   sine + t * (rope_dim / 2), inverse ? -1.0f : 1.0f);
        }
}

EXPORT void k_norm_rope(const float *x, ptrdiff_t ldx, ptrdiff_t tokens, ptrdiff_t heads,
                        ptrdiff_t dim, const float *weight, float eps, const float *cosine,
                        const float *sine, ptrdiff_t rope_dim, float *out) {
    for (ptrdiff_t t = 0; t < tokens; t++)
        for (ptrdiff_t h = 0; h < heads; h++, out += dim) {
            rms_norm(x + t * ldx + h * dim, dim, weight, eps, out);
            rotate(out + dim - rope_dim, rope_dim, cosine + t * (rope_dim / 2),
                   sine + t * (rope_dim / 2), 1.0f);
        }
}
