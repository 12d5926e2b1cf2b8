"""From a request to a sequence, and from a sequence's progress to an output."""

from typing import TYPE_CHECKING

from engine.errors import ContextOverflow, InvalidRequest
from engine.sampler import Sampled
from engine.sequence import EngineRequest, FinishReason, Output, Sequence, TokenLogprobs

if TYPE_CHECKING:
    from engine.core import Engine

MAX_REQUEST_ID = 512


def make_sequence(engine: "Engine", request: EngineRequest, *, own_seed: int) -> Sequence:
    """Check a request and turn it into a sequence.

    Args:
        engine: whose vocabulary and context bound the request.
        request: as submitted.
        own_seed: used when the request brings none.

    Raises:
        InvalidRequest: an empty prompt, a token id outside the vocabulary, an unusable id.
        ContextOverflow: prompt and completion need more tokens than the context holds.
    """
    sampling, prompt = request.sampling, request.prompt_token_ids
    _check(request, engine.architecture.vocab_size)
    eos = () if sampling.ignore_eos else engine.architecture.eos_token_ids
    scored: list[TokenLogprobs | None] | None = None
    if sampling.prompt_logprobs is not None:
        scored = [None] * min(max(1, sampling.prompt_logprobs_start), len(prompt))
    return Sequence(
        request=request,
        token_ids=list(prompt),
        prompt_tokens=len(prompt),
        max_tokens=_max_tokens(len(prompt), sampling.max_tokens, engine.max_model_len),
        seed=own_seed if sampling.seed is None else sampling.seed,
        stop_token_ids=frozenset((*eos, *sampling.stop_token_ids)),
        prompt_logprobs=scored,
    )


def make_output(
    sequence: Sequence,
    reason: FinishReason | None,
    *,
    draw: Sampled | None = None,
    first: bool = False,
    error: str = "",
) -> Output:
    """Say what a step brought for a sequence.

    Args:
        sequence: after the step.
        reason: None while it goes on.
        draw: the token drawn, if any.
        first: whether this is the sequence's first output, which carries the prompt's logprobs.
        error: one sentence, with the reason "error".
    """
    new = () if draw is None else (draw.token_id,)
    scores: tuple[TokenLogprobs, ...] | None = None
    if sequence.sampling.logprobs is not None:
        scores = () if draw is None or draw.logprobs is None else (draw.logprobs,)
    scored = sequence.prompt_logprobs
    return Output(
        request_id=sequence.request_id,
        new_token_ids=new,
        logprobs=scores,
        prompt_logprobs=tuple(scored) if first and scored is not None else None,
        finish_reason=reason,
        stop_token_id=new[0] if new and new[0] in sequence.stop_token_ids else None,
        prompt_tokens=sequence.prompt_tokens,
        cached_tokens=sequence.cached_tokens or 0,
        completion_tokens=sequence.completion_tokens,
        error=error,
    )


def _check(request: EngineRequest, vocab_size: int) -> None:
    prompt = request.prompt_token_ids
    if not request.request_id or len(request.request_id) > MAX_REQUEST_ID:
        raise InvalidRequest(f"A request id must have 1 to {MAX_REQUEST_ID} characters.")
    if not prompt:
        raise InvalidRequest("The prompt is empty; it needs at least one token.")
    low, high = min(prompt), max(prompt)
    if low < 0 or high >= vocab_size:
        wrong = low if low < 0 else high
        raise InvalidRequest(f"Token id {wrong} is not in the vocabulary of {vocab_size}.")


def _max_tokens(prompt_tokens: int, wanted: int | None, longest: int) -> int:
    max_tokens = max(longest - prompt_tokens, 1) if wanted is None else wanted
    if prompt_tokens + max_tokens > longest:
        raise ContextOverflow(
            prompt_tokens=prompt_tokens, max_tokens=max_tokens, max_model_len=longest
        )
    return max_tokens
