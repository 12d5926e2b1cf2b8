"""The three ops of a patch, and how their arguments are made of a case."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fidelity.tensors.arguments import is_float, outputs_of, short

Op = Callable[..., Any]


class Bench(NamedTuple):
    """Candidate, baseline and reference; the run's dtype and device; the declared format."""

    candidate: Op
    baseline: Op
    reference: Op
    dtype: torch.dtype
    device: torch.device
    formats: Mapping[str, Callable[[Tensor], Tensor]]
    keep: Sequence[str]

    @property
    def label(self) -> str:
        """The declared format in words."""
        parts = [f"{name} {getattr(f, '__name__', 'rounded')}" for name, f in self.formats.items()]
        return ", ".join([short(self.dtype), *sorted(parts)])

    def run(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """What the candidate makes of arguments as `given` returns them."""
        return outputs_of(self.candidate(**arguments), "candidate")

    def plain(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """What the baseline makes of arguments as `given` or `declared` return them."""
        return outputs_of(self.baseline(**arguments), "baseline")

    def true(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """What the maths makes of arguments as `wide` returns them."""
        return outputs_of(self.reference(**arguments), "reference")

    def given(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the candidate gets: on its device, floating inputs in the run's dtype."""
        return {name: self._cast(name, value, self.dtype) for name, value in arguments.items()}

    def declared(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What the declared format makes of it: the same, rounded."""
        given = self.given(arguments)
        return {
            name: self.formats[name](value.float()).to(value.dtype)
            if name in self.formats
            else value
            for name, value in given.items()
        }

    def wide(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The declared values in float64, for the maths."""
        return {
            name: value.double() if is_float(value) else value
            for name, value in self.declared(arguments).items()
        }

    def _cast(self, name: str, value: Any, dtype: torch.dtype) -> Any:
        """A copy: what a kernel does to its arguments must reach nobody else's."""
        if not isinstance(value, Tensor):
            return value
        kept = not is_float(value) or name in self.keep
        return value.to(self.device, value.dtype if kept else dtype, copy=True)
