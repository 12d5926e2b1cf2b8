"""POST /v1/completions: a text or token ids in, their continuation out, nothing rendered."""

import time
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.errors import InvalidRequest
from engine.event_stream import DONE, EventStream, event, unless_client_leaves
from engine.generation import Generation, GenerationFailed, Piece, usage_body
from engine.http_errors import ApiError, json_response
from engine.logprobs_format import CompletionLogprobs, prompt_logprobs
from engine.protocol import CompletionBody
from engine.serving import PROMPT_LOGPROB_COST, Serving
from engine.unimplemented import refuse_unimplemented

DEFAULT_MAX_TOKENS = 16  # OpenAI's


class CompletionEndpoint:
    """The completions part of the server."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: Request) -> Response:
        """Serve one request."""
        serving = self._serving
        body = await serving.read(request, CompletionBody)
        serving.engine.request_log.received_openai(body)
        refuse_unimplemented(body)
        serving.check_model(body.model)
        with_usage = body.wants_usage()
        max_tokens = DEFAULT_MAX_TOKENS if body.max_tokens is None else body.max_tokens
        if max_tokens == 0 and not body.echo:
            raise InvalidRequest("max_tokens is 0, which needs echo to be true.")
        sampling = body.sampling(max_tokens=max_tokens, logprobs=body.logprobs)
        if body.echo and body.logprobs is not None:
            scored = max(body.logprobs, body.prompt_logprobs or 0)
            sampling = replace(sampling, prompt_logprobs=scored)
        parts = body.prompt_parts()
        token_ids = parts if isinstance(parts, list) else await serving.encode(parts)
        generation = serving.submit(request, body, token_ids, sampling)
        run = CompletionRun(serving, body, token_ids, generation, with_usage=with_usage)
        if body.stream:
            headers = {"X-Request-Id": generation.request_id}
            return EventStream(run.events(), headers, closing=generation.close)
        try:
            return await unless_client_leaves(request.receive, run.whole())
        finally:
            generation.close()


class CompletionRun:
    """One completion request that has been submitted."""

    def __init__(
        self,
        serving: Serving,
        body: CompletionBody,
        prompt_token_ids: list[int],
        generation: Generation,
        *,
        with_usage: bool,
    ) -> None:
        self._serving = serving
        self._body = body
        self._prompt_token_ids = prompt_token_ids
        self._generation = generation
        self._with_usage = with_usage
        self._created = int(time.time())
        self._format = CompletionLogprobs(
            serving.engine.tokenizer, top=0 if body.logprobs is None else body.logprobs
        )

    async def whole(self) -> Response:
        """The continuation as one JSON object."""
        generation = self._generation
        pieces: list[Piece] = []
        while generation.finish_reason is None:
            pieces.append(await generation.next())
        choice = self._choice(self._echo(), pieces)
        choice["finish_reason"] = generation.finish_reason
        if self._body.prompt_logprobs is not None:
            choice["prompt_logprobs"] = await self._serving.off_loop(
                len(generation.prompt_logprobs or ()) * PROMPT_LOGPROB_COST, self._prompt_logprobs
            )
        if self._body.return_token_ids:
            choice["prompt_token_ids"] = self._prompt_token_ids
        body = self._head() | {"choices": [choice], "usage": self._usage()}
        return json_response(body, headers={"X-Request-Id": generation.request_id})

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The continuation as server-sent events, ended by [DONE]."""
        generation = self._generation
        pending: list[Piece] = []
        first = True
        while generation.finish_reason is None:
            try:
                pending.append(piece := await generation.next())
            except GenerationFailed as error:
                yield event(ApiError(500, str(error), kind="server_error").body())
                return
            if not (piece.text or piece.finish_reason or (first and self._body.echo)):
                continue
            choice = self._choice(self._echo() if first else [], pending)
            choice["finish_reason"] = piece.finish_reason
            if first and self._body.prompt_logprobs is not None:
                choice["prompt_logprobs"] = self._prompt_logprobs()
            if first and self._body.return_token_ids:
                choice["prompt_token_ids"] = self._prompt_token_ids
            yield event(self._head() | {"choices": [choice]} | self._no_usage())
            pending.clear()
            first = False
        if self._with_usage:
            yield event(self._head() | {"choices": [], "usage": self._usage()})
        yield DONE

    def _echo(self) -> list[Piece]:
        """The prompt as the first piece of the answer, where it is to be repeated."""
        if not self._body.echo:
            return []
        text = self._serving.engine.tokenizer.decode(self._prompt_token_ids)
        return [Piece(text=text, token_ids=tuple(self._prompt_token_ids))]

    def _choice(self, echoed: list[Piece], pieces: list[Piece]) -> dict[str, Any]:
        texts = [piece.text for piece in (*echoed, *pieces)]
        choice: dict[str, Any] = {"index": 0, "text": "".join(texts), "logprobs": None}
        generated = [token_id for piece in pieces for token_id in piece.token_ids]
        if self._body.logprobs is not None:
            of_prompt = self._generation.prompt_logprobs or ()
            choice["logprobs"] = self._format.add(
                [*(self._prompt_token_ids if echoed else ()), *generated],
                [*(of_prompt if echoed else ()), *(lp for p in pieces for lp in p.logprobs)],
            )
        if self._body.return_token_ids:
            choice["token_ids"] = generated
        return choice

    def _prompt_logprobs(self) -> list[dict[str, Any] | None]:
        tokens = self._generation.prompt_logprobs or ()
        top = self._body.prompt_logprobs or 0
        return prompt_logprobs(self._serving.engine.tokenizer, tokens, top=top)

    def _head(self) -> dict[str, Any]:
        return {
            "id": self._generation.request_id,
            "object": "text_completion",
            "created": self._created,
            "model": self._body.model,
        }

    def _no_usage(self) -> dict[str, Any]:
        return {"usage": None} if self._with_usage else {}

    def _usage(self) -> dict[str, Any]:
        return usage_body(self._generation.usage, reasoning_tokens=None)
