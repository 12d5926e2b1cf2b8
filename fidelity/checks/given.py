"""What a deployment must be able to do before a text can be given to it and scored."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fidelity.measure import Measure

_ECHO = frozenset({"sglang"})
"""Dialects without logprobs of given text that echo a prompt with its logprobs."""


def needs_given_text(measure: Measure) -> None:
    """Require token ids of a prompt, and logprobs of given ones, by either way.

    Raises:
        CapabilityMissing: the deployment expects one that is absent or unproven.
        NotApplicable: one is absent, and nobody promised it.
    """
    measure.needs("tokenize", "completions")
    if getattr(measure.deployment.capabilities, "dialect", "") not in _ECHO:
        measure.needs("prompt_logprobs")
