"""Patch `nvfp4_experts`: routed experts' weights in nvfp4: e4m3 scales, one factor a matrix.

What is stored and what the product computes: kernels/fp4.py.
"""

from kernels.fp4 import experts_patch

PATCH = experts_patch(
    "nvfp4",
    summary="routed experts' weights in nvfp4",
    source="NVFP4 checkpoints of DeepSeek-V4",
)
