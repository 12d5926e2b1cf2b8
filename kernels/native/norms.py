"""RMS norm and rotary embedding in C; meaning: kernels/baseline/norms.py."""

from torch import Tensor, empty

from kernels.checks import check_rope_dim, check_shape
from kernels.native.core import NativeCore, address, rows


class Norms(NativeCore):
    """See kernels/baseline/norms.py."""

    def rms_norm(self, x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
        """See kernels/baseline/norms.py."""
        dim = x.shape[-1]
        scale = None
        if weight is not None:
            check_shape("weight", weight, dim)
            scale = address("weight", weight)
        out = empty(x.shape)
        if x.dim() == 2:
            x, data, stride = rows("x", x)
        else:
            x = x.contiguous()
            data, stride = address("x", x), dim
        self._c.k_rms_norm(data, stride, x.numel() // max(1, dim), dim, scale, eps, out.data_ptr())
        return out

    def rope(
        self, x: Tensor, cos: Tensor, sin: Tensor, *, rope_dim: int, inverse: bool = False
    ) -> Tensor:
        """See kernels/baseline/norms.py."""
        tokens, heads, dim = x.shape
        x, data, stride = rows("x", x)
        cosine, sine = _angles(cos, sin, tokens, rope_dim, dim)
        out = empty(x.shape)
        self._c.k_rope(
            data, stride, tokens, heads, dim, cosine, sine, rope_dim, inverse, out.data_ptr()
        )
        return out

    def norm_rope(
        self,
        x: Tensor,
        weight: Tensor | None,
        cos: Tensor,
        sin: Tensor,
        *,
        eps: float,
        rope_dim: int,
    ) -> Tensor:
        """See kernels/baseline/norms.py."""
        tokens, heads, dim = x.shape
        scale = None
        if weight is not None:
            check_shape("weight", weight, dim)
            scale = address("weight", weight)
        x, data, stride = rows("x", x)
        cosine, sine = _angles(cos, sin, tokens, rope_dim, dim)
        out = empty(x.shape)
        self._c.k_norm_rope(
            data, stride, tokens, heads, dim, scale, eps, cosine, sine, rope_dim, out.data_ptr()
        )
        return out


def _angles(cos: Tensor, sin: Tensor, tokens: int, rope_dim: int, dim: int) -> tuple[int, int]:
    check_rope_dim(rope_dim, dim)
    check_shape("cos", cos, tokens, rope_dim // 2)
    check_shape("sin", sin, tokens, rope_dim // 2)
    return address("cos", cos), address("sin", sin)
