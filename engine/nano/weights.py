"""The trainable parameters, under the names of the exported file."""

import torch
from torch import Tensor, nn

from engine.nano.config import NanoConfig


class Weights(nn.Module):
    """fp32 masters of every parameter; the forward asks for them in fp32 or in the compute dtype.

    The router's correction bias and the hash table are buffers: no gradient reaches them.
    """

    def __init__(self, config: NanoConfig, values: dict[str, Tensor], dtype: torch.dtype) -> None:
        super().__init__()
        self.config = config
        self.dtype = dtype
        self._fields = {name: name.replace(".", "__") for name in values}
        for name, value in values.items():
            if value.is_floating_point() and not name.endswith("e_score_correction_bias"):
                self.register_parameter(self._fields[name], nn.Parameter(value.float().clone()))
            else:
                self.register_buffer(self._fields[name], value.clone())
        self.rms_eps = config.rms_eps
        self.hc_eps = config.hc_eps

    @property
    def device(self) -> torch.device:
        """Where the parameters live."""
        return self.full("model.norm.weight").device

    def full(self, name: str) -> Tensor:
        """The fp32 master."""
        value = getattr(self, self._fields[name])
        assert isinstance(value, Tensor)  # noqa: S101 - nn.Module types its attributes as Module too
        return value

    def cast(self, name: str) -> Tensor:
        """The parameter in the compute dtype."""
        return self.full(name).to(self.dtype)

    def named(self) -> dict[str, Tensor]:
        """Every parameter and buffer by its exported name."""
        return {name: self.full(name).detach() for name in self._fields}

    def trainable(self) -> dict[str, nn.Parameter]:
        """The parameters that receive gradients, by their exported names."""
        found = {name: self.full(name) for name in self._fields}
        return {name: value for name, value in found.items() if isinstance(value, nn.Parameter)}
