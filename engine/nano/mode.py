"""What one forward of the trainer does besides the plain model."""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(slots=True, kw_only=True)
class Mode:
    """Switches of one forward. The defaults are the plain model with dense compressed attention.

    topk: read only the best entries of a CSA layer, as the exported model does; at most this many.
    topk_live: int tensor; how many of them count. Lets one captured graph serve several widths.
    train_index: teach the indexer which entries attention read (adds `Aux.index_loss`).
    rows: int64 [B, Q]; query positions that teach the indexer.
    index_keys: a form of `rounding.round_keys`, or "mixed" (rows alternate fp32, fp8, fp4).
    balance: scalar tensor; step of the router's correction bias towards even load, or None.
    fault: one of `faults.FAULTS`, or None.
    bf16_mixing: run the stream-mixing projection in bf16.
    """

    topk: int | None = None
    topk_live: Tensor | None = None
    train_index: bool = False
    rows: Tensor | None = None
    index_keys: str | None = None
    balance: Tensor | None = None
    fault: str | None = None
    bf16_mixing: bool = False


@dataclass(slots=True)
class Aux:
    """What a forward hands back besides hidden states."""

    index_loss: Tensor


def no_loss(device: torch.device) -> Aux:
    """An `Aux` to which nothing was added yet."""
    return Aux(torch.zeros((), device=device))


# Deliberate faults for the visibility table, by the name that the card prints.
FAULTS = (
    "random selection",
    "no CSA entries",
    "no Ca overlap",
    "no HCA entries",
    "HCA one entry late",
    "HCA without position bias",
    "HCA keys not rotated",
    "CSA one entry late",
    "CSA without position bias",
    "no sinks",
    "no output un-rotation",
    "no YaRN",
    "main rotation everywhere",
    "sinkhorn 1",
    "sinkhorn 3",
    "mixing transposed",
    "swapped epsilons",
    "wrong hash table",
    "no correction bias",
)
