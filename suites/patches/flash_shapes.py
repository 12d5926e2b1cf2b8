"""Shapes that DeepSeek-V4-Flash has: what is cut off, or never reached, shows at no smaller one.

Tokens, experts and a layer's other dimension are few, so that a CPU does each case in seconds.
"""

import torch
from torch import Tensor

from fidelity.tensors import Case
from kernels import Settings
from suites.patches import decode_inputs, expert_inputs, index_inputs
from suites.patches.synthetic import normal

HEADS, DIM, ROPE, WINDOW = 64, 512, 64, 128
INDEX_HEADS, INDEX_DIM, INDEX_TOPK, M = 64, 128, 512, 4
EXPERTS, TOPK, HIDDEN, INNER, SCALING, LIMIT = 256, 6, 4096, 2048, 1.5, 10.0
NARROW = 64
"""The dimension of an expert that is not summed over: a multiple of every block."""
SETTINGS = Settings(
    index_topk=INDEX_TOPK,
    index_head_dim=INDEX_DIM,
    head_dim=DIM,
    rope_dim=ROPE,
    implementation="torch",
)


def decode_cases(generator: torch.Generator, *, selected: bool) -> list[Case]:
    """One token over its window and 512, then (Pro's) 1,024 entries: 10 and 18 splits of 64 keys.

    Without selection all 1,087 entries are read: 19 splits.
    """
    shape = {"heads": HEADS, "dim": DIM, "window": WINDOW, "m": M}
    if not selected:
        given = decode_inputs.sequences(generator, [4_351, 130], topk=0, **shape)
        return [Case("64 heads x 512, all entries", given)]
    return [
        Case(
            f"64 heads x 512, {topk} entries",
            decode_inputs.sequences(generator, [4_351, 130], topk=topk, **shape),
        )
        for topk in (INDEX_TOPK, 2 * INDEX_TOPK)
    ]


def index_case(generator: torch.Generator, topk: int = INDEX_TOPK) -> Case:
    """Two queries of 64 heads over 5,500 and 2,500 entries, of which so many are selected."""
    given = index_inputs.sequences(
        generator, [22_000, 9_999], heads=INDEX_HEADS, dim=INDEX_DIM, topk=topk
    )
    return Case(f"64 heads x 128, {topk} of 5,500 entries", given)


def router(generator: torch.Generator, tokens: int) -> dict[str, Tensor]:
    """Rows and the gate of 256 experts."""
    gate: Tensor = normal(generator, EXPERTS, HIDDEN) * HIDDEN**-0.5
    return {"x": normal(generator, tokens, HIDDEN), "gate": gate}


def expert_cases(generator: torch.Generator, tokens: int) -> list[Case]:
    """Two experts whose gate and up, then whose down, sum over as many channels as Flash's."""
    return [
        Case(
            f"{tokens} tokens, 2 experts {hidden}x{inner}",
            {
                "x": normal(generator, tokens, hidden) * 6,  # some activations reach the clamp
                **expert_inputs.routing(generator, tokens, 2, 2),
                **expert_inputs.weights_of(generator, 2, inner, hidden),
                "limit": LIMIT,
            },
        )
        for hidden, inner in ((HIDDEN, NARROW), (NARROW, INNER))
    ]


def kv_rows(generator: torch.Generator, rows: int) -> Tensor:
    """KV rows, each of another size, as they are before they are stored."""
    sizes = torch.logspace(-1, 1, rows)[:, None]
    made: Tensor = normal(generator, rows, DIM) * sizes
    return made
