"""How long a silence may last: scaled by what was asked, since a long prompt takes its time."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Timeouts:
    """How slow a server may be before its silence counts as trouble.

    Attributes:
        idle_s: longest silence between two deltas, and the base of everything else.
        prefill_tokens_per_s: slowest prefill, with other requests in between.
        decode_tokens_per_s: slowest decode.
    """

    idle_s: float = 60.0
    prefill_tokens_per_s: float = 50.0
    decode_tokens_per_s: float = 2.0

    def first_s(self, prompt_tokens: int) -> float:
        """Until the first delta that carries output: queueing and prefill lie before it."""
        return self.idle_s + prompt_tokens / self.prefill_tokens_per_s

    def total_s(self, prompt_tokens: int, max_tokens: int) -> float:
        """Until the end of the answer."""
        return self.first_s(prompt_tokens) + self.idle_s + max_tokens / self.decode_tokens_per_s
