"""RMS norm."""

from torch import Tensor

from reference.arguments import check_shape, wide


def rms_norm(x: Tensor, weight: Tensor | None, eps: float) -> Tensor:
    """Compute x / sqrt(mean(x^2) + eps) * weight over the last dimension.

    Args:
        x: [..., C].
        weight: [C], or None for none (as for each query head).
        eps: added to the mean square, inside the root.

    Returns: [..., C] in float32, or float64 where x is float64.
    Raises: ValueError: a weight of another shape.
    """
    x = wide(x)
    normed = x / (x.square().mean(-1, keepdim=True) + eps).sqrt()
    if weight is None:
        return normed
    check_shape("weight", weight, x.shape[-1])
    return normed * weight.to(x.dtype)
