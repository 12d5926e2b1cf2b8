"""What the endpoints share: reading, checking, submitting, and what is recorded at the end."""

import asyncio
import uuid
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from engine.bodies import Body, read_body
from engine.generation import Generation, TextOptions
from engine.http_errors import ApiError
from engine.parts import EngineParts
from engine.protocol import GenerationBody, RequestId
from engine.sequence import SamplingParams

ON_LOOP_LIMIT = 20_000  # characters; longer texts are tokenised in a thread (about 10 ms on)

PROMPT_LOGPROB_COST = 10  # formatting one token's logprobs, in characters of tokenising

Result = TypeVar("Result")


class Serving:
    """One server's view of its engine. Lives in the event loop."""

    def __init__(self, engine: EngineParts) -> None:
        self.engine = engine

    async def read(self, request: Request, kind: type[Body]) -> Body:
        """The request's body, typed. Raises: ApiError, ClientGone."""
        return await read_body(request, kind, limit_bytes=self.engine.config.max_request_bytes)

    def check_model(self, model: str | None) -> None:
        """Raises: ApiError: 404, the model is not the one served here."""
        served = self.engine.config.served_model_name
        if model is not None and model != served:
            raise ApiError(
                404,
                f"The model {model!r:.200} does not exist; this server serves {served!r}.",
                kind="not_found_error",
                param="model",
                code="model_not_found",
            )

    async def off_loop(self, size: int, work: Callable[[], Result]) -> Result:
        """Run `work` here, or in a thread where `size` characters would hold the loop up."""
        if size <= ON_LOOP_LIMIT:
            return work()
        return await asyncio.to_thread(work)

    async def encode(self, text: str) -> list[int]:
        """Token ids of a text."""
        return await self.off_loop(len(text), lambda: self.engine.tokenizer.encode(text))

    def submit(
        self,
        request: Request,
        body: GenerationBody,
        prompt_token_ids: list[int],
        sampling: SamplingParams,
    ) -> Generation:
        """Hand a request to the scheduler.

        Raises: QueueFull, ContextOverflow, InvalidRequest: it was not accepted.
        """
        engine = self.engine
        generation = Generation(
            engine.scheduler,
            engine.tokenizer,
            request_id=self._request_id(request, body),
            prompt_token_ids=prompt_token_ids,
            sampling=sampling,
            text=TextOptions(
                stops=body.stops(),
                keep_stop=body.include_stop_str_in_output,
                hidden_ids=self._hidden_ids() if body.skip_special_tokens else frozenset(),
            ),
            on_close=self._record,
        )
        engine.request_log.received(generation, sampling, body)
        return generation

    def _request_id(self, request: Request, body: GenerationBody) -> str:
        """The client's own id (body before header), else a new random one."""
        header = request.headers.get("x-request-id")
        if body.rid is None and header is not None:
            try:
                return msgspec.convert(header, RequestId)
            except msgspec.ValidationError as error:
                raise ApiError(
                    400, f"the header X-Request-Id is no request id: {error}."
                ) from error
        return body.rid or uuid.uuid4().hex

    def _hidden_ids(self) -> frozenset[int]:
        spec, tokenizer = self.engine.encoder.spec, self.engine.tokenizer
        ids = (tokenizer.token_id(marker) for marker in spec.turn_markers)
        return frozenset(i for i in ids if i is not None)

    def _record(self, generation: Generation) -> None:
        self.engine.metrics.observe(generation)
        self.engine.request_log.finished(generation)


def model_card(engine: EngineParts, created: int) -> dict[str, Any]:
    """One entry of /v1/models."""
    return {
        "id": engine.config.served_model_name,
        "object": "model",
        "created": created,
        "owned_by": "fidelity",
        "root": engine.config.served_model_name,
        "max_model_len": engine.max_model_len,
    }
