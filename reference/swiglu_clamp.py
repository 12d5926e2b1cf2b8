"""Truth for the patch `swiglu_clamp`: the clamp of the experts' pre-activations."""

from reference.experts import expert, routed_experts, swiglu

__all__ = ["expert", "routed_experts", "swiglu"]
