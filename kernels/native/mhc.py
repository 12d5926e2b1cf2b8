"""Hyper-connections in C; meaning: kernels/baseline/mhc.py."""

from torch import Tensor, empty

from kernels.checks import check_shape, refuse
from kernels.native.core import NativeCore, address

MAX_STREAMS = 8  # MAX_STREAMS of mhc.c


class HyperConnections(NativeCore):
    """See kernels/baseline/mhc.py."""

    def mhc_pre(
        self,
        streams: Tensor,
        fn: Tensor,
        base: Tensor,
        scale: Tensor,
        *,
        rms_eps: float,
        hc_eps: float,
        iters: int,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """See kernels/baseline/mhc.py."""
        tokens, n, hidden = streams.shape
        _check_streams(n)
        check_shape("fn", fn, (2 + n) * n, n * hidden)
        check_shape("base", base, (2 + n) * n)
        check_shape("scale", scale, 3)
        if iters < 1:
            refuse("iters", iters, "at least 1")
        y, post, comb = empty((tokens, hidden)), empty((tokens, n)), empty((tokens, n, n))
        self._c.k_mhc_pre(
            address("streams", streams), tokens, n, hidden, self._weights.matrices("fn", fn),
            address("base", base), address("scale", scale), rms_eps, hc_eps, iters, y.data_ptr(),
            post.data_ptr(), comb.data_ptr(),
        )  # fmt: skip
        return y, post, comb

    def mhc_post(self, f: Tensor, streams: Tensor, post: Tensor, comb: Tensor) -> Tensor:
        """See kernels/baseline/mhc.py."""
        tokens, n, hidden = streams.shape
        _check_streams(n)
        check_shape("f", f, tokens, hidden)
        check_shape("post", post, tokens, n)
        check_shape("comb", comb, tokens, n, n)
        out = empty(streams.shape)
        self._c.k_mhc_post(
            address("f", f), address("streams", streams), tokens, n, hidden, address("post", post),
            address("comb", comb), out.data_ptr(),
        )  # fmt: skip
        return out

    def mhc_head(
        self,
        streams: Tensor,
        fn: Tensor,
        base: Tensor,
        scale: Tensor,
        *,
        rms_eps: float,
        hc_eps: float,
    ) -> Tensor:
        """See kernels/baseline/mhc.py."""
        tokens, n, hidden = streams.shape
        _check_streams(n)
        check_shape("fn", fn, n, n * hidden)
        check_shape("base", base, n)
        check_shape("scale", scale, 1)
        out = empty((tokens, hidden))
        self._c.k_mhc_head(
            address("streams", streams), tokens, n, hidden, self._weights.matrices("fn", fn),
            address("base", base), address("scale", scale), rms_eps, hc_eps, out.data_ptr(),
        )  # fmt: skip
        return out


def _check_streams(n: int) -> None:
    if not 1 <= n <= MAX_STREAMS:
        refuse("streams", f"{n} streams", f"1..{MAX_STREAMS}")
