#include "simd.h"

/* out = x times the normalised Walsh-Hadamard matrix, row by row; dim is a power of two. The
 * butterflies and the last product are those of `walsh_hadamard` in index_keys.py, to the bit. */
EXPORT void k_walsh_hadamard(const float *x, ptrdiff_t rows, ptrdiff_t dim, float norm,
                             float *out) {
    memcpy(out, x, (size_t)(rows * dim) * sizeof(float));
    for (ptrdiff_t row = 0; row < rows; row++, out += dim) {
        for (ptrdiff_t half = 1; half < dim; half *= 2)
            for (ptrdiff_t first = 0; first < dim; first += 2 * half)
                for (ptrdiff_t i = first; i < first + half; i++) {
                    float low = out[i], high = out[i + half];
                    out[i] = low + high;
                    out[i + half] = low - high;
                }
        for (ptrdiff_t i = 0; i < dim; i++) out[i] *= norm;
    }
}
