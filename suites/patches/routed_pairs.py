"""Whether each expert that was chosen comes with its own weight.

Chosen sets are judged outside ties, and weights in their order: neither sees two ids that changed
places. So each weight is held against the true one of the expert that stands beside it; whichever
of two tied experts was taken, its weight is its own.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from fidelity.microtests.results import Check
from fidelity.tensors import Case, Op, compare
from fidelity.tensors.checks import TINY, error_checks
from reference.routing import route_selected, router_scores


def pair_checks(
    candidate: Op,
    baseline: Op,
    cases: Case | Iterable[Case],
    *,
    dtype: torch.dtype,
    keep: Iterable[str] = (),
    device: torch.device,
) -> list[Check]:
    """Hold weights [T, K] against those of the ids [T, K] that came with them.

    Args:
        candidate: (x, gate, …, scaling) -> (ids, weights).
        baseline: the same in plain torch; its pairs set the limit.
        cases: their arguments.
        dtype: of the run.
        keep: arguments that stay as they are.
        device: where both run.
    """
    keep = tuple(keep)
    checks: list[Check] = []
    for case in [cases] if isinstance(cases, Case) else cases:
        given = {n: _cast(n, v, dtype, keep, device) for n, v in case.arguments.items()}
        mine, plain = (compare(*_pairs(op, given)) for op in (candidate, baseline))
        where = f"{case.name}, each expert's own weight"
        checks += error_checks(mine, plain, tiny=TINY, where=where)
    return checks


def _pairs(op: Op, given: Mapping[str, Any]) -> tuple[Tensor, Tensor]:
    """(weights as they came, true weights of the same ids)."""
    ids, weights = op(**given)
    scores = router_scores(given["x"].double(), given["gate"].double())
    return weights, route_selected(scores, ids, given["scaling"])


def _cast(
    name: str, value: Any, dtype: torch.dtype, keep: tuple[str, ...], device: torch.device
) -> Any:
    if not isinstance(value, Tensor):
        return value
    floating = value.dtype.is_floating_point and name not in keep
    return value.to(device, dtype if floating else value.dtype)
