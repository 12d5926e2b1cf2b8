"""What a deployment must be able to do before a text can be given to it and scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fidelity.endpoint.caps import PROMPT_LOGPROBS_TOKENS
from fidelity.errors import NotApplicable

if TYPE_CHECKING:
    from fidelity.deployment.deployment import Deployment
    from fidelity.measure import Measure

_ECHO = frozenset({"sglang"})
"""Dialects without logprobs of given text that echo a prompt with its logprobs."""
_UNLOCK = "--fidelity-allow load asks them"


def needs_given_text(measure: Measure) -> None:
    """Require token ids of a prompt, and logprobs of given ones, by either way.

    Raises:
        CapabilityMissing: the deployment expects one that is absent or unproven.
        NotApplicable: one is absent, and nobody promised it.
    """
    measure.needs("tokenize", "completions")
    if getattr(measure.deployment.capabilities, "dialect", "") not in _ECHO:
        measure.needs("prompt_logprobs")


def given_limit(measure: Measure, longest: int, *deployments: Deployment) -> int | None:
    """Return the longest text that all may be asked to score; None while nothing is sent.

    Where it is this limit that leaves lengths away, the claim's reason says so.

    Args:
        measure: the claim.
        longest: length in tokens that is planned.
        deployments: to be asked.
    """
    if measure.planning:
        return None
    limit = min(deployment.client.given_text_limit for deployment in deployments)
    contexts = [deployment.capabilities.max_model_len for deployment in deployments]
    if limit <= longest and all(size is None or limit < size for size in contexts):
        measure.note(
            f"texts end below {limit:,} tokens: logprobs of longer ones cost a server gigabytes"
            + (f"; {_UNLOCK}" if limit < PROMPT_LOGPROBS_TOKENS else "")
        )
    return limit


def fitting_rows(rows: dict[int, int], *limits: int | None) -> dict[int, int]:
    """Return the lengths that fit all limits; trials of the others go to the longest that does.

    Args:
        rows: length in tokens -> how many trials.
        limits: longest contexts; None where unknown.

    Raises:
        NotApplicable: none fits.
    """
    most = min((limit for limit in limits if limit is not None), default=None)
    fits = {row: count for row, count in rows.items() if most is None or row < most}
    if not fits:
        raise NotApplicable(f"no text of {min(rows)} tokens fits a context of {most}")
    fits[max(fits)] += sum(rows.values()) - sum(fits.values())
    return fits
