#include "gemm.h"

#define BLOCK 64

/* o: [tokens][groups * width]; a: `groups` matrices [rank][width], each packed; b: [hidden][groups
 * * rank]. */
EXPORT int k_grouped_output(const float *o, ptrdiff_t tokens, ptrdiff_t groups, ptrdiff_t width,
                            const float *a, ptrdiff_t rank, const float *b, ptrdiff_t hidden,
                            float *out) {
    float *z = scratch((size_t)(BLOCK * groups * rank) * sizeof(float));
    if (!z) return 1;
    for (ptrdiff_t t = 0; t < tokens; t += BLOCK) {
        ptrdiff_t count = tokens - t < BLOCK ? tokens - t : BLOCK;
        for (ptrdiff_t g = 0; g < groups; g++)
            gemm(o + t * groups * width + g * width, groups * width, count,
                 a + g * packed_size(rank, width), width, rank, z + g * rank, groups * rank);
        gemm(z, groups * rank, count, b, groups * rank, hidden, out + t * hidden, hidden);
    }
    return 0;
}
