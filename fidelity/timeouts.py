"""How long a silence may last: scaled by what was asked, since a long prompt takes its time."""

from dataclasses import dataclass

SLOWEST_PREFILL_TOKENS_PER_S = 50.0
SLOWEST_DECODE_TOKENS_PER_S = 1.0


@dataclass(frozen=True, slots=True)
class Timeouts:
    """`idle_s` is the longest silence between two deltas, and the base of everything else."""

    idle_s: float = 60.0

    def first_s(self, prompt_tokens: int) -> float:
        """Until the first delta that carries output: queueing and prefill lie before it."""
        return self.idle_s + prompt_tokens / SLOWEST_PREFILL_TOKENS_PER_S

    def total_s(self, prompt_tokens: int, max_tokens: int) -> float:
        """Until the end of the answer."""
        return self.first_s(prompt_tokens) + max_tokens / SLOWEST_DECODE_TOKENS_PER_S
