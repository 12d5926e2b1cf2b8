"""Truth for the patch `nvfp4_experts`: experts on weights that are rounded to NVFP4."""

from reference.experts import routed_experts
from reference.formats import dequantise_nvfp4, quantise_nvfp4, round_nvfp4

__all__ = ["dequantise_nvfp4", "quantise_nvfp4", "round_nvfp4", "routed_experts"]
