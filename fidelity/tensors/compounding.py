"""What an implementation and a rounding become over many layers, and at the logits."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from fidelity.microtests.results import Check
from fidelity.statistics.ladder import Difference, rung
from fidelity.tensors.checks import BASELINE_FACTOR
from fidelity.tensors.compare import compare
from fidelity.words import Question

DEPTHS = (21, 43, 61)
KL_NATS = 0.05
"""Margin for a choice of format: mean KL at the logits; 5 % in perplexity."""
GROWTH = 2.0
"""Largest growth of an error over depth, as a multiple of how bf16 rounding grows there."""

Op = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stack:
    """Layers in which the error of an op compounds, down to logits.

    Attributes:
        step: (op, x, layer) -> x of the next layer; any shape whose first dimension is tokens.
        start: x before the first layer.
        head: [V, channels of a token]; logits are head @ (x / rms(x)).
        depths: where errors are measured, ascending.
        decides_kl: whether the KL at the logits is decided; False where the layers are too unlike
            a model for an absolute margin, and the growth of the error decides alone.
    """

    step: Callable[[Op, Tensor, int], Tensor]
    start: Tensor
    head: Tensor
    depths: tuple[int, ...] = DEPTHS
    decides_kl: bool = True


class Declared(NamedTuple):
    """The declared format in a stack: its own maths, and plain torch in it.

    Both are called as the candidate is, and round what the format rounds by themselves.
    """

    maths: Op
    plain: Op


def compounding_checks(
    candidate: Op,
    reference: Op,
    stack: Stack,
    *,
    where: str,
    declared: Declared | None = None,
) -> tuple[Check, ...]:
    """Run candidate, truth, and the truth in bf16 (the null arm) side by side.

    With `declared` the implementation is judged too: at each depth the candidate's state is held
    against that of the format's own maths. It may be off by twice what plain torch in that format
    is, and by what bf16 rounding does there: states that part in their last bit may choose
    other entries or experts at some layer.

    Returns: at each depth the implementation's error (decided, with `declared`), the error against
        the truth (reported) and the KL at the logits; the growth over depth (decided). An error of
        nothing at all grows by nothing.
    """
    arms = {"truth": reference, "candidate": candidate, "null": in_bf16(reference)}
    if declared is not None:
        arms |= {"maths": declared.maths, "plain": declared.plain}
    states = dict.fromkeys(arms, stack.start)
    checks: list[Check] = []
    errors: dict[str, list[float]] = {"candidate": [], "null": []}
    for layer in range(stack.depths[-1]):
        states = {arm: stack.step(op, states[arm], layer) for arm, op in arms.items()}
        if layer + 1 in stack.depths:
            spot = f"{where}, {layer + 1} layers"
            for arm, found in errors.items():
                found.append(_error(states[arm], states["truth"]))
            if declared is not None:
                checks += _implementation(states, errors["null"][-1], spot, layer + 1)
            checks += _at_depth(states, stack, errors, spot, layer + 1)
    grown = {arm: found[-1] / found[0] if found[0] else 1.0 for arm, found in errors.items()}
    limit = GROWTH * grown["null"]
    checks.append(
        Check(
            question=Question.FORMAT,
            name="growth of the error over depth",
            value=grown["candidate"],
            limit=limit,
            holds=grown["candidate"] <= limit,
            rung=rung(Difference(size=grown["candidate"], null_floor=limit)),
            where=where,
            sentence=f"the error grows {grown['candidate']:.2f} times from {stack.depths[0]} to"
            f" {stack.depths[-1]} layers, more than {limit:.2f}, twice what bf16 rounding does"
            f" ({where})",
        )
    )
    return tuple(checks)


def _error(state: Tensor, truth: Tensor) -> float:
    """Relative error; infinite where NaN or Inf stand in other places."""
    found = compare(state, truth)
    return float("inf") if found.mask_differences else found.relative


def _implementation(states: dict[str, Tensor], null: float, where: str, depth: int) -> list[Check]:
    """The candidate beside plain torch, both against the format's own maths."""
    mine, plain = (_error(states[arm], states["maths"]) for arm in ("candidate", "plain"))
    limit = BASELINE_FACTOR * plain + null
    holds = mine <= limit < float("inf")
    return [
        Check(
            question=Question.IMPLEMENTATION,
            name=f"error against the format's maths, {depth} layers",
            value=mine,
            limit=limit,
            holds=holds,
            rung=rung(Difference(equal=mine == 0, size=mine, null_floor=limit)),
            where=where,
            sentence=f"after {depth} layers the state is {mine:.3g} from that of the declared"
            f" format's maths, above {limit:.3g}: twice plain torch in that format, and what bf16"
            f" rounding does ({where})",
        ),
        Check(
            question=Question.IMPLEMENTATION,
            name=f"the same of plain torch, {depth} layers",
            value=plain,
            where=where,
        ),
    ]


def _at_depth(
    states: dict[str, Tensor],
    stack: Stack,
    errors: dict[str, list[float]],
    where: str,
    depth: int,
) -> list[Check]:
    found = compare(states["candidate"], states["truth"])
    reported = [
        ("relative error", found.relative),
        ("relative error of bf16 rounding", errors["null"][-1]),
        ("cosine difference", found.cosine_difference),
    ]
    checks = [
        Check(question=Question.FORMAT, name=f"{name}, {depth} layers", value=value, where=where)
        for name, value in reported
    ]
    logits = [_logits(states[arm], stack.head) for arm in ("candidate", "null", "truth")]
    decides = stack.decides_kl
    return [*checks, *logit_checks(*logits, name=f"{depth} layers", where=where, decides=decides)]


def logit_checks(
    candidate: Tensor, null: Tensor, truth: Tensor, *, name: str, where: str, decides: bool = True
) -> tuple[Check, ...]:
    """KL at the logits [T, V] of a candidate, beside that of harmless rounding (reported)."""
    kl, floor = mean_kl_nats(candidate, truth), mean_kl_nats(null, truth)
    judged = Check(
        question=Question.FORMAT,
        name=f"KL at the logits, nats, {name}",
        value=kl,
        limit=KL_NATS if decides else None,
        holds=kl <= KL_NATS if decides else None,
        rung=rung(Difference(size=kl, null_floor=KL_NATS)) if decides else None,
        where=where,
        sentence=f"mean KL at the logits is {kl:.2g} nats, above {KL_NATS} (bf16 rounding:"
        f" {floor:.2g}; {where})",
    )
    return judged, Check(
        question=Question.FORMAT,
        name=f"KL at the logits of bf16 rounding, nats, {name}",
        value=floor,
        where=where,
    )


def mean_kl_nats(candidate: Tensor, truth: Tensor) -> float:
    """Mean over rows of KL(truth || candidate) of logits [T, V]; Inf where one is not finite."""
    p, q = (torch.log_softmax(logits.double().cpu(), dim=1) for logits in (truth, candidate))
    kl = (p.exp() * (p - q)).sum(1).mean()
    return float(kl) if bool(kl.isfinite()) else float("inf")


def _logits(x: Tensor, head: Tensor) -> Tensor:
    flat = x.double().flatten(1)
    flat = flat / flat.square().mean(1, keepdim=True).sqrt().clamp(min=1e-30)
    return flat @ head.double().T


def in_bf16(op: Op) -> Op:
    """The op with its floating inputs and outputs rounded to bf16: harmless by common consent."""

    def rounded(*args: Any, **kwargs: Any) -> Any:
        made = op(*map(_bf16, args), **{name: _bf16(value) for name, value in kwargs.items()})
        return _bf16(made) if isinstance(made, Tensor) else tuple(_bf16(part) for part in made)

    return rounded


def _bf16(x: Any) -> Any:
    floating = isinstance(x, Tensor) and x.dtype.is_floating_point
    return x.bfloat16().to(x.dtype) if floating else x
