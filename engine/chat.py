"""POST /v1/chat/completions: a conversation in, the next turn out, streamed or whole."""

import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from engine.answer import Answer
from engine.errors import InvalidRequest
from engine.event_stream import DONE, EventStream, event, unless_client_leaves
from engine.generation import Generation, GenerationFailed, Piece, usage_body
from engine.http_errors import ApiError, json_response
from engine.logprobs_format import chat_logprobs, prompt_logprobs
from engine.messages import checked_tools, normalise
from engine.protocol import ChatBody, TemplateOptions, TokenizeBody
from engine.serving import PROMPT_LOGPROB_COST, Serving
from engine.unimplemented import refuse_unimplemented


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatPrompt:
    """A conversation rendered for the model, and how its answer is to be read."""

    token_ids: list[int]
    thinking: bool
    tools: bool


class ChatEndpoint:
    """The chat part of the server."""

    def __init__(self, serving: Serving) -> None:
        self._serving = serving

    async def __call__(self, request: Request) -> Response:
        """Serve one request."""
        serving = self._serving
        body = await serving.read(request, ChatBody)
        serving.engine.request_log.received_openai(body)
        refuse_unimplemented(body)
        serving.check_model(body.model)
        run = await self._start(request, body)
        if body.stream:
            headers = {"X-Request-Id": run.request_id}
            return EventStream(run.events(), headers, closing=run.close)
        try:
            return await unless_client_leaves(request.receive, run.whole())
        finally:
            run.close()

    async def _start(self, request: Request, body: ChatBody) -> "ChatRun":
        serving = self._serving
        with_usage = body.wants_usage()
        top = body.alternatives()
        sampling = body.sampling(max_tokens=body.token_limit(), logprobs=top)
        prompt = await self.prompt(body, tools_offered=body.tool_choice != "none")
        generation = serving.submit(request, body, prompt.token_ids, sampling)
        max_calls = 1 if body.parallel_tool_calls is False else None
        parser = serving.engine.parsers.open(
            thinking=prompt.thinking, tools=prompt.tools, max_calls=max_calls
        )
        return ChatRun(
            serving,
            body,
            prompt,
            generation,
            answer=Answer(parser),
            with_usage=with_usage,
            top=top,
        )

    async def prompt(
        self, body: ChatBody | TokenizeBody, *, tools_offered: bool = True
    ) -> ChatPrompt:
        """Render and tokenise the conversation.

        Raises: InvalidRequest: the encoder has no rendering for it.
        """
        if not body.messages:
            raise InvalidRequest("messages is empty.")
        engine = self._serving.engine
        tools = checked_tools(body.tools) if tools_offered else []
        thinking = self._thinking(body.chat_template_kwargs, body.reasoning_effort)
        messages = normalise(body.messages)
        size = sum(len(message["content"]) for message in messages)
        token_ids = await self._serving.off_loop(
            size,
            lambda: engine.encoder.encode(
                messages,
                tools or None,
                thinking=thinking,
                effort=None if body.reasoning_effort == "none" else body.reasoning_effort,
                add_generation_prompt=body.add_generation_prompt,
            ),
        )
        ends_open = thinking and engine.encoder.opens_reasoning(token_ids)
        return ChatPrompt(token_ids=token_ids, thinking=ends_open, tools=bool(tools))

    def _thinking(self, options: TemplateOptions | None, effort: str | None) -> bool:
        """Whether the answer starts with reasoning: the request's word, else the server's."""
        asked = None if options is None else options.thinking
        if effort == "none":
            if asked:
                raise InvalidRequest("reasoning_effort is 'none', but thinking is true.")
            return False
        known = self._serving.engine.encoder.spec.efforts
        if effort is not None and effort not in known:
            raise InvalidRequest(
                f"reasoning_effort is {effort!r}, but this model knows: none, {', '.join(known)}."
            )
        if asked is not None:
            return asked
        engine = self._serving.engine
        return engine.ops.default_thinking() or engine.config.default_thinking


class ChatRun:
    """One chat request that has been submitted."""

    def __init__(
        self,
        serving: Serving,
        body: ChatBody,
        prompt: ChatPrompt,
        generation: Generation,
        *,
        answer: Answer,
        with_usage: bool,
        top: int | None,
    ) -> None:
        self._serving = serving
        self._body = body
        self._prompt = prompt
        self._generation = generation
        self._answer = answer
        self._with_usage = with_usage
        self._top = top
        self._created = int(time.time())
        self.request_id = generation.request_id

    def close(self) -> None:
        """Nobody waits for the answer any more; harmless once it is complete."""
        self._generation.close()

    async def whole(self) -> Response:
        """The answer as one JSON object."""
        pieces: list[Piece] = []
        generation = self._generation
        while generation.finish_reason is None:
            pieces.append(piece := await generation.next())
            self._answer.feed(piece.text, last=piece.finish_reason is not None)
            self._end_when_complete()
        choice: dict[str, Any] = {
            "index": 0,
            "message": self._answer.message(),
            "logprobs": self._logprobs([lp for piece in pieces for lp in piece.logprobs]),
            "finish_reason": self._finish_reason(),
        }
        body = self._head("chat.completion") | {"choices": [choice], "usage": self._usage()}
        if self._body.return_token_ids:
            choice["token_ids"] = generation.usage.token_ids
            body["prompt_token_ids"] = self._prompt.token_ids
        if generation.prompt_logprobs is not None:
            body["prompt_logprobs"] = await self._serving.off_loop(
                len(generation.prompt_logprobs or ()) * PROMPT_LOGPROB_COST, self._prompt_logprobs
            )
        return json_response(body, headers={"X-Request-Id": self.request_id})

    async def events(self) -> AsyncGenerator[bytes, None]:
        """The answer as server-sent events: role, deltas, finish, usage if asked for, [DONE]."""
        generation = self._generation
        first = self._chunk({"role": "assistant", "content": ""})
        if self._body.return_token_ids:
            first["prompt_token_ids"] = self._prompt.token_ids
        yield event(first)
        pending: list[Piece] = []
        while generation.finish_reason is None:
            try:
                pending.append(piece := await generation.next())
            except GenerationFailed as error:
                yield event(ApiError(500, str(error), kind="server_error").body())
                return
            for chunk in self._chunks(piece, pending):
                yield event(chunk)
            self._end_when_complete()
        if self._with_usage:
            yield event(self._head("chat.completion.chunk") | self._usage_event())
        yield DONE

    def _chunks(self, piece: Piece, pending: list[Piece]) -> list[dict[str, Any]]:
        """Chunks of one piece. Logprobs of tokens without text wait in `pending` for the next."""
        ended = piece.finish_reason is not None
        deltas = self._answer.feed(piece.text, last=ended)
        chunks = [self._chunk(delta) for delta in deltas]
        if ended or self._answer.complete:
            chunks.append(self._chunk({}, finish_reason=self._finish_reason()))
        if chunks:
            choice = chunks[0]["choices"][0]
            choice["logprobs"] = self._logprobs([lp for p in pending for lp in p.logprobs])
            if self._body.return_token_ids:
                choice["token_ids"] = [i for p in pending for i in p.token_ids]
            pending.clear()
        if self._generation.prompt_logprobs is not None and self._body.prompt_logprobs is not None:
            holder = chunks[0] if chunks else self._chunk({})
            holder["prompt_logprobs"] = self._prompt_logprobs()
            self._generation.prompt_logprobs = None
            chunks = chunks or [holder]
        return chunks

    def _end_when_complete(self) -> None:
        if self._answer.complete and self._generation.finish_reason is None:
            self._generation.finish()

    def _finish_reason(self) -> str:
        return self._answer.finish_reason(self._generation.finish_reason or "stop")

    def _head(self, kind: str) -> dict[str, Any]:
        return {
            "id": self.request_id,
            "object": kind,
            "created": self._created,
            "model": self._body.model,
        }

    def _chunk(self, delta: dict[str, Any], *, finish_reason: str | None = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish_reason}
        chunk = self._head("chat.completion.chunk") | {"choices": [choice]}
        return chunk | {"usage": None} if self._with_usage else chunk

    def _usage_event(self) -> dict[str, Any]:
        return {"choices": [], "usage": self._usage()}

    def _usage(self) -> dict[str, Any]:
        usage = self._generation.usage
        reasoning = self._serving.engine.parsers.reasoning_tokens(
            usage.token_ids, thinking=self._prompt.thinking
        )
        return usage_body(usage, reasoning_tokens=reasoning)

    def _logprobs(self, tokens: Sequence[Any]) -> dict[str, Any] | None:
        if self._top is None:
            return None
        tokenizer = self._serving.engine.tokenizer
        return {"content": chat_logprobs(tokenizer, tokens, top=self._top), "refusal": None}

    def _prompt_logprobs(self) -> list[dict[str, Any] | None]:
        tokens = self._generation.prompt_logprobs or ()
        top = self._body.prompt_logprobs or 0
        return prompt_logprobs(self._serving.engine.tokenizer, tokens, top=top)
