"""Truth for the patch `mxfp4_experts`: experts on weights that are rounded to MXFP4."""

from reference.experts import routed_experts
from reference.formats import dequantise_mxfp4, quantise_mxfp4, round_mxfp4

__all__ = ["dequantise_mxfp4", "quantise_mxfp4", "round_mxfp4", "routed_experts"]
