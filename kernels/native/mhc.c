/* Hyper-connections. Gates and Sinkhorn run on VL tokens side by side, one token a lane. */
#include "gemm.h"
#include "norms.h"

#define MAX_STREAMS 8
#define TOKENS 32 /* a block: its streams stay in the second-level cache */

INLINE void normalise(vf *c, int n, int step, int stride, float eps) {
    UNROLL
    for (int line = 0; line < n; line++) {
        vf sum = c[line * stride];
        UNROLL
        for (int i = 1; i < n; i++) sum += c[line * stride + i * step];
        vf scale = 1.0f / (sum + eps);
        UNROLL
        for (int i = 0; i < n; i++) c[line * stride + i * step] *= scale;
    }
}

/* c[j * n + k]: logits in, doubly stochastic out. */
INLINE void sinkhorn(vf *c, int n, float eps, int iters) {
    UNROLL
    for (int j = 0; j < n; j++) {
        vf top = c[j * n], sum = {0};
        UNROLL
        for (int k = 1; k < n; k++) top = vmax(c[j * n + k], top);
        UNROLL
        for (int k = 0; k < n; k++) sum += c[j * n + k] = vexp(c[j * n + k] - top);
        UNROLL
        for (int k = 0; k < n; k++) c[j * n + k] = c[j * n + k] / sum + eps;
    }
    normalise(c, n, n, 1, eps);
    for (int i = 1; i < iters; i++) {
        normalise(c, n, 1, n, eps);
        normalise(c, n, n, 1, eps);
    }
}

/* mix: [VL][width], one token a row, already divided by its norm. */
INLINE void gates(int n, const float *mix, ptrdiff_t width, const float *base, const float *scale,
                  float eps, int iters, float pre[][VL], float post[][VL], float comb[][VL]) {
    vf c[MAX_STREAMS * MAX_STREAMS];
    for (int j = 0; j < (2 + n) * n; j++) {
        float lanes[VL];
        for (int lane = 0; lane < VL; lane++) lanes[lane] = mix[lane * width + j];
        vf value = load(lanes) * scale[j < n ? 0 : j < 2 * n ? 1 : 2] + base[j];
        if (j < n) store(pre[j], vsigmoid(value) + eps);
        else if (j < 2 * n) store(post[j - n], 2.0f * vsigmoid(value));
        else c[j - 2 * n] = value;
    }
    sinkhorn(c, n, eps, iters);
    for (int j = 0; j < n * n; j++) store(comb[j], c[j]);
}

/* y[d] = sum_j pre[j] * x[j][d] */
INLINE void collapse(int n, const float *x, ptrdiff_t hidden, const float *pre, float *y) {
    for (ptrdiff_t d = 0; d < hidden; d++) {
        float sum = 0.0f;
        UNROLL
        for (int j = 0; j < n; j++) sum += pre[j] * x[j * hidden + d];
        y[d] = sum;
    }
}

/* mix[t] = (x[t] @ fn.T) / rms(x[t]) for up to TOKENS tokens */
static void mix_rows(const float *x, ptrdiff_t tokens, ptrdiff_t wide, const float *fn,
                     ptrdiff_t width, float eps, float *mix) {
    gemm(x, wide, tokens, fn, wide, width, mix, width);
    for (ptrdiff_t t = 0; t < tokens; t++) {
        float r = 1.0f / sqrtf(sum_squares(x + t * wide, wide) / (float)wide + eps);
        for (ptrdiff_t j = 0; j < width; j++) mix[t * width + j] *= r;
    }
}

INLINE void pre_block(int n, const float *x, ptrdiff_t tokens, ptrdiff_t hidden, const float *fn,
                      const float *base, const float *scale, float rms_eps, float hc_eps, int iters,
                      float *y, float *post, float *comb) {
    float mix[TOKENS * (2 + MAX_STREAMS) * MAX_STREAMS];
    ptrdiff_t width = (2 + n) * n;
    mix_rows(x, tokens, n * hidden, fn, width, rms_eps, mix);
    memset(mix + tokens * width, 0, (size_t)((TOKENS - tokens) * width) * sizeof(float));
    for (ptrdiff_t first = 0; first < tokens; first += VL) {
        float a[MAX_STREAMS][VL], b[MAX_STREAMS][VL], c[MAX_STREAMS * MAX_STREAMS][VL];
        gates(n, mix + first * width, width, base, scale, hc_eps, iters, a, b, c);
        for (ptrdiff_t t = first; t < tokens && t < first + VL; t++) {
            float pre[MAX_STREAMS];
            int lane = (int)(t - first);
            for (int j = 0; j < n; j++) pre[j] = a[j][lane], post[t * n + j] = b[j][lane];
            for (int j = 0; j < n * n; j++) comb[t * n * n + j] = c[j][lane];
            collapse(n, x + t * n * hidden, hidden, pre, y + t * hidden);
        }
    }
}

EXPORT void k_mhc_pre(const float *x, ptrdiff_t tokens, int n, ptrdiff_t hidden, const float *fn,
                      const float *base, const float *scale, float rms_eps, float hc_eps, int iters,
                      float *y, float *post, float *comb) {
    for (ptrdiff_t t = 0; t < tokens; t += TOKENS) {
        ptrdiff_t count = tokens - t < TOKENS ? tokens - t : TOKENS;
        const float *xt = x + t * n * hidden;
        float *yt = y + t * hidden, *pt = post + t * n, *ct = comb + t * n * n;
        if (n == 4)
            pre_block(4, xt, count, hidden, fn, base, scale, rms_eps, hc_eps, iters, yt, pt, ct);
        else pre_block(n, xt, count, hidden, fn, base, scale, rms_eps, hc_eps, iters, yt, pt, ct);
    }
}

/* out[k] = post[k] * f + sum_j comb[j][k] * x[j] */
INLINE void expand(int n, const float *f, const float *x, ptrdiff_t hidden, const float *post,
                   const float *comb, float *out) {
    ptrdiff_t d = 0;
    for (; d + VL <= hidden; d += VL) {
        vf in = load(f + d), streams[MAX_STREAMS] = {0};
        UNROLL
        for (int j = 0; j < n; j++) streams[j] = load(x + j * hidden + d);
        UNROLL
        for (int k = 0; k < n; k++) {
            vf sum = post[k] * in;
            UNROLL
            for (int j = 0; j < n; j++) sum += comb[j * n + k] * streams[j];
            store(out + k * hidden + d, sum);
        }
    }
    for (; d < hidden; d++)
        for (int k = 0; k < n; k++) {
            float sum = post[k] * f[d];
            for (int j = 0; j < n; j++) sum += comb[j * n + k] * x[j * hidden + d];
            out[k * hidden + d] = sum;
        }
}

EXPORT void k_mhc_post(const float *f, const float *x, ptrdiff_t tokens, int n, ptrdiff_t hidden,
                       const float *post, const float *comb, float *out) {
    for (ptrdiff_t t = 0; t < tokens; t++) {
        const float *ft = f + t * hidden, *xt = x + t * n * hidden;
        float *ot = out + t * n * hidden;
        if (n == 4) expand(4, ft, xt, hidden, post + t * 4, comb + t * 16, ot);
        else expand(n, ft, xt, hidden, post + t * n, comb + t * n * n, ot);
    }
}

EXPORT void k_mhc_head(const float *x, ptrdiff_t tokens, int n, ptrdiff_t hidden, const float *fn,
                       const float *base, const float *scale, float rms_eps, float hc_eps,
                       float *y) {
    float mix[TOKENS * MAX_STREAMS];
    for (ptrdiff_t t = 0; t < tokens; t += TOKENS) {
        ptrdiff_t count = tokens - t < TOKENS ? tokens - t : TOKENS;
        mix_rows(x + t * n * hidden, count, n * hidden, fn, n, rms_eps, mix);
        for (ptrdiff_t i = 0; i < count; i++) {
            float pre[MAX_STREAMS];
            for (int j = 0; j < n; j++)
                pre[j] = 1.0f / (1.0f + expf(-(mix[i * n + j] * scale[0] + base[j]))) + hc_eps;
            collapse(n, x + (t + i) * n * hidden, hidden, pre, y + (t + i) * hidden);
        }
    }
}
