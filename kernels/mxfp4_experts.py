"""Patch `mxfp4_experts`: routed experts' weights in mxfp4, as DeepSeek-V4 stores them.

What is stored and what the product computes: kernels/fp4.py.
"""

from kernels.fp4 import experts_patch

PATCH = experts_patch(
    "mxfp4",
    summary="routed experts' weights in mxfp4",
    source="DeepSeek-V4 checkpoints (expert_dtype fp4)",
)
