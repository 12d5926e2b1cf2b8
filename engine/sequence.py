"""Requests as the engine sees them, and what it sends back.

`EngineRequest` is what a front end submits, `Sequence` is what the scheduler works on, `Output` is
what the front end gets, one a step. A front end never touches a `Sequence`.
"""

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from engine.errors import InvalidRequest

if TYPE_CHECKING:
    from engine.prefix_tree import Node

FinishReason = Literal["stop", "length", "abort", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn. Each field is independent of what else is in the batch.

    Raises:
        InvalidRequest: a value outside its range, with the name, the value and the range.
    """

    max_tokens: int | None = None
    """Most tokens to generate; None: as many as the context holds; 0: only read the prompt."""
    temperature: float = 1.0
    """0 is greedy: the highest logit, and of equal ones the lowest token id."""
    top_p: float = 1.0
    top_k: int = 0
    """0 or -1: off."""
    min_p: float = 0.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    seed: int | None = None
    stop_token_ids: tuple[int, ...] = ()
    """Besides the checkpoint's own end tokens."""
    ignore_eos: bool = False
    logprobs: int | None = None
    """None: none. n >= 0: the logprob of each generated token, and the n most likely ones."""
    prompt_logprobs: int | None = None
    """The same for the tokens of the prompt. Such a request never reads the prefix cache."""
    prompt_logprobs_start: int = 0
    """First prompt position to score; what lies before costs no logits."""

    def __post_init__(self) -> None:
        """Check every range."""
        for name, low, high in _RANGES:
            value = getattr(self, name)
            if value is None:
                continue
            if not (math.isfinite(value) and low <= value <= high):
                raise InvalidRequest(f"{name} is {value!r}, but must be from {low} to {high}.")
        if self.top_p == 0.0:
            raise InvalidRequest("top_p is 0, but must be above 0; for greedy set temperature 0.")

    @property
    def greedy(self) -> bool:
        """Whether no random number is drawn."""
        return self.temperature == 0.0 or self.top_k == 1

    @property
    def penalised(self) -> bool:
        """Whether logits depend on the tokens generated so far."""
        return self.frequency_penalty != 0.0 or self.presence_penalty != 0.0


_RANGES: tuple[tuple[str, float, float], ...] = (
    ("max_tokens", 0, 1 << 31),
    ("temperature", 0.0, 100.0),
    ("top_p", 0.0, 1.0),
    ("top_k", -1, 1 << 31),
    ("min_p", 0.0, 1.0),
    ("frequency_penalty", -2.0, 2.0),
    ("presence_penalty", -2.0, 2.0),
    ("seed", -(1 << 63), (1 << 63) - 1),
    ("logprobs", 0, 1 << 20),
    ("prompt_logprobs", 0, 1 << 20),
    ("prompt_logprobs_start", 0, 1 << 31),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenLogprobs:
    """The model's own log-probability of one token, before temperature, penalties and filters.

    `top` holds (token id, logprob), most likely first, lowest id first among equals. `rank` counts
    from 1; equal logprobs share the better rank.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step brought for one request.

    The last one of a request has a `finish_reason`. `new_token_ids` includes the end token that
    stopped the request; `stop_token_id` then names it, so that a front end can leave it out.
    """

    request_id: str
    new_token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] | None = None
    """One for each new token, when asked for."""
    prompt_logprobs: tuple[TokenLogprobs | None, ...] | None = None
    """One for each prompt token, in the first output only; None where not scored."""
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Prompt tokens whose pages came from the prefix cache when the request was first admitted."""
    completion_tokens: int = 0
    error: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineRequest:
    """One request as a front end submits it.

    `on_output` is called from the engine's thread, in order, and must not block.
    """

    request_id: str
    prompt_token_ids: list[int]
    sampling: SamplingParams
    on_output: Callable[[Output], None]


class Status(enum.Enum):
    """Where a sequence is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


@dataclass(slots=True, kw_only=True, eq=False)
class Sequence:
    """A request at work: its tokens, its pages, and how far it is.

    Invariants (checked by `PageOwnership.check_integrity`):
        `num_computed <= len(token_ids)`; rows of exactly the first `num_computed` tokens are
        written in `pages`; `pages[:num_shared_pages]` belong to the prefix tree and are locked
        through `node`, the rest belong to this sequence alone.
    """

    request: EngineRequest
    token_ids: list[int]
    """Prompt, then everything generated."""
    prompt_tokens: int
    max_tokens: int
    seed: int
    stop_token_ids: frozenset[int]
    status: Status = Status.WAITING
    num_computed: int = 0
    cached_tokens: int | None = None
    pages: list[int] = field(default_factory=list)
    num_shared_pages: int = 0
    node: "Node | None" = None
    end_requested: FinishReason | None = None
    """Set by abort or finish; obeyed at the next step boundary."""
    prompt_logprobs: list[TokenLogprobs | None] | None = None
    retractions: int = 0

    @property
    def request_id(self) -> str:
        """The id that the front end chose."""
        return self.request.request_id

    @property
    def sampling(self) -> SamplingParams:
        """The request's sampling parameters."""
        return self.request.sampling

    @property
    def completion_tokens(self) -> int:
        """How many tokens were generated."""
        return len(self.token_ids) - self.prompt_tokens

    @property
    def completion_token_ids(self) -> list[int]:
        """What was generated."""
        return self.token_ids[self.prompt_tokens :]

    @property
    def num_uncomputed(self) -> int:
        """Tokens whose rows are not yet written: 1 while decoding, more while prefilling."""
        return len(self.token_ids) - self.num_computed
