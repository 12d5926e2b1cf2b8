"""What a run may cost a server: allowed traffic classes and hard caps, checked before sending."""

from collections.abc import Iterable
from dataclasses import dataclass

import anyio

from fidelity.errors import CapSpent, TrafficRefused
from fidelity.words import Budget, Traffic

BUDGET_S = {Budget.QUICK: 900.0, Budget.STANDARD: 5_400.0, Budget.DEEP: 36_000.0}
"""Seconds of a server's work that a budget may use when no token cap is given."""
ANSWER_TOKENS = {Budget.QUICK: 8_000, Budget.STANDARD: 40_000, Budget.DEEP: 200_000}
"""What the suites have a server generate; its time is taken off before prompts are counted."""
LEAST_PROMPT_SHARE = 1 / 3
"""Of a budget's seconds, however slowly a server generates."""
LEAST_TOKENS = 300_000
"""What the claims without long prompts need at quick; a slower server simply takes longer."""
SWEEP_SHARE = 0.4
"""Of what prompts may cost, for the lengths of one sweep: a slow server is asked shorter ones."""
TIME_SHARE = 0.25
"""Of the seconds that a run with a time cap has left, for the lengths of one sweep."""
PROMPT_LOGPROBS_TOKENS = 16_384
"""Logprobs of given text cost a server memory for every position of the vocabulary."""
UNSPANNED_TOKENS = 2_304
"""The same where no span can be asked for, and all positions are scored at once: 1.4 GB of float32
at 150k words. Room for texts of 2k tokens; more of it is load, and has to be allowed."""
_ROLE_OVERHEAD_TOKENS = 16


@dataclass(slots=True)
class Spent:
    """What was sent so far, in requests and in tokens as usage told them."""

    requests: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Prompt and completion together."""
        return self.prompt_tokens + self.completion_tokens


class Caps:
    """Admits requests. Used by one event loop; not for several threads.

    A prompt's tokens are not known before it is sent: bytes are their upper bound, tightened by
    the largest ratio that the server's own usage has shown.
    """

    def __init__(
        self, *, max_requests: int, max_tokens: int | None, allow: Iterable[Traffic]
    ) -> None:
        """Set the caps; `max_tokens` None means that `derive` sets it later."""
        self.max_requests = max_requests
        self.max_tokens = max_tokens
        self.sweep_tokens = None if max_tokens is None else int(SWEEP_SHARE * max_tokens)
        """What the lengths of a sweep may cost together; None while no cap is set."""
        self.allow = frozenset(allow) | {Traffic.PASSIVE}
        self.spent = Spent()
        self._reserved_tokens = 0
        self._tokens_per_byte: float | None = None
        self._prefill_tokens_per_s: float | None = None
        self._changed = anyio.Event()

    def derive(
        self,
        budget: Budget,
        prefill_tokens_per_s: float,
        decode_tokens_per_s: float | None = None,
        *,
        measured: bool = True,
    ) -> int:
        """Set the caps from the budget and the measured speed; a token cap that was given stays.

        A budget is seconds: those of generating are taken off, prompts get the rest. A sweep must
        fit into both, so that one claim does not take the time of all others on a slow server;
        a speed that is not `measured` but assumed takes nothing off a cap.
        """
        seconds = BUDGET_S[budget]
        spent_s = ANSWER_TOKENS[budget] / decode_tokens_per_s if decode_tokens_per_s else 0.0
        prompts_s = max(LEAST_PROMPT_SHARE * seconds, seconds - spent_s)
        timely = int(SWEEP_SHARE * prompts_s * prefill_tokens_per_s)
        if self.max_tokens is None:
            self.max_tokens = max(LEAST_TOKENS, int(seconds * prefill_tokens_per_s))
        if self.sweep_tokens is None or measured:
            self.sweep_tokens = min(timely, self.sweep_tokens or timely)
        if measured:
            self._prefill_tokens_per_s = prefill_tokens_per_s
        return self.max_tokens

    def sweep_room(self, seconds_left: float | None = None, claims_left: int = 1) -> int | None:
        """Return what the lengths of a sweep may cost now, in tokens; None while nothing bounds it.

        Under a time cap a sweep takes a quarter of what is left of it, so that claims behind it
        have their turn; more when there are fewer than three.

        Args:
            seconds_left: of the run's time cap; None without one.
            claims_left: that are not decided, this one included.
        """
        if seconds_left is None or self._prefill_tokens_per_s is None:
            return self.sweep_tokens
        share = max(TIME_SHARE, 1 / (1 + claims_left))
        timely = int(share * max(0.0, seconds_left) * self._prefill_tokens_per_s)
        return timely if self.sweep_tokens is None else min(timely, self.sweep_tokens)

    @property
    def remaining_tokens(self) -> int | None:
        """Tokens that may still be sent; None while no cap is set."""
        if self.max_tokens is None:
            return None
        return max(0, self.max_tokens - self.spent.tokens - self._reserved_tokens)

    def check_traffic(self, traffic: Traffic) -> None:
        """Refuse a traffic class that nobody allowed.

        Raises:
            TrafficRefused: says which flag allows it.
        """
        if traffic not in self.allow:
            raise TrafficRefused(
                f"{traffic} traffic is not allowed on this server:"
                f" pass --fidelity-allow {traffic} if it may be disturbed"
            )

    def given_text_tokens(self, *, spans: bool) -> int:
        """Return how long a text may be whose logprobs are asked for.

        Args:
            spans: the server scores only the positions that are asked for.
        """
        return PROMPT_LOGPROBS_TOKENS if spans or Traffic.LOAD in self.allow else UNSPANNED_TOKENS

    def estimate(self, body_bytes: int, messages: int = 1) -> int:
        """Return an upper estimate of a prompt's tokens."""
        ratio = 1.0 if self._tokens_per_byte is None else min(1.0, 1.25 * self._tokens_per_byte)
        return int(body_bytes * ratio) + _ROLE_OVERHEAD_TOKENS * messages

    async def admit(self, tokens: int = 0) -> None:
        """Count one request and reserve its tokens; waits while only reservations are in the way.

        Raises:
            CapSpent: a cap is spent, or this request would pass it; says which.
        """
        while self.max_tokens is not None and tokens:
            left = self.max_tokens - self.spent.tokens
            if tokens > left:
                raise CapSpent(
                    f"a request of up to {tokens} tokens passes the cap of {self.max_tokens}"
                    f" ({max(0, left)} left): raise --fidelity-max-tokens or lower the budget"
                )
            if tokens <= left - self._reserved_tokens:
                break
            await self._changed.wait()  # what is in flight may turn out smaller than reserved
        if self.spent.requests >= self.max_requests:
            raise CapSpent(
                f"the cap of {self.max_requests} requests is spent: raise --fidelity-max-requests"
            )
        self.spent.requests += 1
        self._reserved_tokens += tokens

    def _free(self, tokens: int) -> None:
        self._reserved_tokens -= tokens
        self._changed.set()
        self._changed = anyio.Event()

    def settle(
        self, tokens: int, *, prompt: int | None, completion: int | None, body_bytes: int = 0
    ) -> None:
        """Replace a reservation by what usage told; without usage the estimate stays spent."""
        self.spent.prompt_tokens += tokens if prompt is None else prompt
        self.spent.completion_tokens += completion or 0
        self._free(tokens)
        if prompt is None:
            return
        if body_bytes >= 200 and prompt > 0:
            seen = prompt / body_bytes
            self._tokens_per_byte = max(self._tokens_per_byte or 0.0, seen)

    def correct(self, estimated: int, told: int) -> None:
        """Replace what a request was settled with by what its answer tells of its prompt."""
        self.spent.prompt_tokens += told - estimated

    def release(self, tokens: int) -> None:
        """Give back the reservation of a request that the server refused to take."""
        self._free(tokens)
