/* Vectors of VL floats by the compiler's vector extension: one source for any x86-64 or aarch64.
 * No -ffast-math: NaN and infinity keep their meaning. A sum runs in the same order whatever the
 * number of tokens, so a token's result never depends on what else is in the batch. */
#ifndef KERNELS_SIMD_H
#define KERNELS_SIMD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__AVX512F__)
#define VL 16
#define MANY_REGISTERS 1
#elif defined(__AVX__)
#define VL 8
#define MANY_REGISTERS 0
#elif defined(__aarch64__)
#define VL 4
#define MANY_REGISTERS 1
#else
#define VL 4
#define MANY_REGISTERS 0
#endif

typedef float vf __attribute__((vector_size(VL * 4)));
typedef int32_t vi __attribute__((vector_size(VL * 4)));
typedef float vf_loose __attribute__((vector_size(VL * 4), aligned(4), may_alias));

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
#define EXPORT __attribute__((visibility("default")))

INLINE vf load(const float *p) { return *(const vf_loose *)p; }
INLINE void store(float *p, vf v) { *(vf_loose *)p = v; }
INLINE vf splat(float x) { return x - (vf){0}; }

/* The first n < VL lanes; the others are 0. Never touches memory past them. */
INLINE vf load_part(const float *p, int n) {
    float lanes[VL] = {0};
    memcpy(lanes, p, (size_t)n * sizeof(float));
    return load(lanes);
}
INLINE void store_part(float *p, vf v, int n) {
    float lanes[VL];
    store(lanes, v);
    memcpy(p, lanes, (size_t)n * sizeof(float));
}

INLINE vf choose(vi mask, vf yes, vf no) { return (vf)((mask & (vi)yes) | (~mask & (vi)no)); }
INLINE vf vmax(vf a, vf b) { return choose(a > b, a, b); }
INLINE vf vmin(vf a, vf b) { return choose(a < b, a, b); }
INLINE vf relu(vf a) { return choose(a <= 0.0f, (vf){0}, a); } /* NaN stays */

INLINE float sum_lanes(vf v) {
    float lanes[VL];
    store(lanes, v);
    for (int half = VL / 2; half > 0; half /= 2)
        for (int i = 0; i < half; i++) lanes[i] += lanes[i + half];
    return lanes[0];
}

/* exp to about 1 ulp; 0 below -87.3, exp(88) above 88, NaN stays NaN. */
INLINE vf vexp(vf x) {
    const vf low = splat(-87.3f), high = splat(88.0f), magic = splat(12582912.0f);
    vf y = vmin(vmax(x, low), high);
    vf t = y * 1.44269504f + magic;
    vf n = t - magic;
    vf r = y - n * 0.693359375f;
    r = r - n * -2.12194440e-4f;
    vf p = splat(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    vf power = (vf)(((vi)t << 23) + (127 << 23));
    p = choose(x < low, (vf){0}, p * power);
    return choose(x == x, p, x);
}
INLINE vf vsigmoid(vf x) { return 1.0f / (1.0f + vexp(-x)); }

#if defined(__clang__)
#define SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, ...) __builtin_shuffle(a, b, (vi){__VA_ARGS__})
#endif

/* One level of a transposition or of a sum over lanes: blocks of `s` lanes change places. */
#if VL == 16
#define LOW_1 0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30
#define HIGH_1 1, 17, 3, 19, 5, 21, 7, 23, 9, 25, 11, 27, 13, 29, 15, 31
#define LOW_2 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29
#define HIGH_2 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31
#define LOW_4 0, 1, 2, 3, 16, 17, 18, 19, 8, 9, 10, 11, 24, 25, 26, 27
#define HIGH_4 4, 5, 6, 7, 20, 21, 22, 23, 12, 13, 14, 15, 28, 29, 30, 31
#define LOW_8 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23
#define HIGH_8 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31
#elif VL == 8
#define LOW_1 0, 8, 2, 10, 4, 12, 6, 14
#define HIGH_1 1, 9, 3, 11, 5, 13, 7, 15
#define LOW_2 0, 1, 8, 9, 4, 5, 12, 13
#define HIGH_2 2, 3, 10, 11, 6, 7, 14, 15
#define LOW_4 0, 1, 2, 3, 8, 9, 10, 11
#define HIGH_4 4, 5, 6, 7, 12, 13, 14, 15
#else
#define LOW_1 0, 4, 2, 6
#define HIGH_1 1, 5, 3, 7
#define LOW_2 0, 1, 4, 5
#define HIGH_2 2, 3, 6, 7
#endif

#define SWAP_LEVEL(v, s)                                                                           \
    UNROLL                                                                                         \
    for (int i = 0; i < VL; i++)                                                                   \
        if (!(i & s)) {                                                                            \
            vf a = v[i], b = v[i | s];                                                             \
            v[i] = SHUFFLE(a, b, LOW_##s);                                                         \
            v[i | s] = SHUFFLE(a, b, HIGH_##s);                                                    \
        }

/* v[i][j] becomes v[j][i]. */
INLINE void transpose(vf v[VL]){SWAP_LEVEL(v, 1) SWAP_LEVEL(v, 2)
#if VL >= 8
                                    SWAP_LEVEL(v, 4)
#endif
#if VL >= 16
                                        SWAP_LEVEL(v, 8)
#endif
}

#define ADD_LEVEL(v, s)                                                                            \
    UNROLL                                                                                         \
    for (int i = 0; i < VL; i++)                                                                   \
        if (!(i & (2 * s - 1))) {                                                                  \
            vf a = v[i], b = v[i | s];                                                             \
            v[i] = SHUFFLE(a, b, LOW_##s) + SHUFFLE(a, b, HIGH_##s);                               \
        }

/* Lane i of the result is the sum over the lanes of v[i]. Destroys v. */
INLINE vf sum_each(vf v[VL]) {
    ADD_LEVEL(v, 1)
    ADD_LEVEL(v, 2)
#if VL >= 8
    ADD_LEVEL(v, 4)
#endif
#if VL >= 16
    ADD_LEVEL(v, 8)
#endif
    return v[0];
}

/* Scratch memory of this thread, 64-byte aligned, valid until its next call; NULL: no memory. */
void *scratch(size_t bytes);

#endif
