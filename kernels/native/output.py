"""Matrix products in C; meaning: kernels/baseline/output.py."""

from torch import Tensor, empty

from kernels.checks import check_shape, refuse
from kernels.native.core import NativeCore, address, rows, succeed


class Products(NativeCore):
    """See kernels/baseline/output.py."""

    def linear(self, x: Tensor, w: Tensor) -> Tensor:
        """See kernels/baseline/output.py."""
        k = x.shape[-1]
        check_shape("w", w, -1, k)
        n = w.shape[0]
        packed = self._weights.matrices("w", w)
        if x.dim() == 2:
            x, data, stride = rows("x", x)
            count, out = x.shape[0], empty((x.shape[0], n))
        else:
            x = x.contiguous()
            data, stride = address("x", x), k
            count, out = x.numel() // max(1, k), empty((*x.shape[:-1], n))
        self._c.k_linear(data, stride, count, packed, k, n, out.data_ptr())
        return out

    def grouped_output(self, o: Tensor, wo_a: Tensor, wo_b: Tensor, *, groups: int) -> Tensor:
        """See kernels/baseline/output.py."""
        tokens, width = o.shape
        if groups < 1 or width % groups or wo_a.shape[0] % groups:
            refuse("groups", groups, f"a divisor of {width} channels and of {wo_a.shape[0]} rows")
        rank = wo_a.shape[0] // groups
        check_shape("wo_a", wo_a, groups * rank, width // groups)
        check_shape("wo_b", wo_b, -1, groups * rank)
        out = empty((tokens, wo_b.shape[0]))
        code = self._c.k_grouped_output(
            address("o", o), tokens, groups, width // groups,
            self._weights.matrices("wo_a", wo_a, groups), rank,
            self._weights.matrices("wo_b", wo_b), wo_b.shape[0], out.data_ptr(),
        )  # fmt: skip
        succeed(code, "grouped_output")
        return out
