"""Truth for the patch `mhc_bf16`: the hyper-connections, whose mixing product it does in bf16."""

from reference.grids import round_bf16
from reference.mhc import mhc_head, mhc_mix, mhc_post, mhc_pre

__all__ = ["mhc_head", "mhc_mix", "mhc_post", "mhc_pre", "round_bf16"]
