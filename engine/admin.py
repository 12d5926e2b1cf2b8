"""The endpoints around generation: tokens, cache, aborts, health, and what runs here."""

import time
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from engine.chat import ChatEndpoint
from engine.errors import InvalidRequest
from engine.event_stream import unless_client_leaves
from engine.generation import Generation, TextOptions
from engine.http_errors import ApiError, json_response
from engine.metrics import CONTENT_TYPE
from engine.protocol import AbortBody, DetokenizeBody, TokenizeBody
from engine.sequence import SamplingParams
from engine.serving import Serving, model_card

_STARTED = time.time()
"""When this process started, Unix seconds: lets a client tell a restart from a long life."""


class AdminEndpoints:
    """One method an endpoint."""

    def __init__(self, serving: Serving, chat: ChatEndpoint) -> None:
        self._serving = serving
        self._chat = chat
        self._started = int(time.time())

    async def models(self, _request: Request) -> Response:
        """GET /v1/models."""
        card = model_card(self._serving.engine, self._started)
        return json_response({"object": "list", "data": [card]})

    async def model(self, request: Request) -> Response:
        """GET /v1/models/{model}."""
        self._serving.check_model(request.path_params["model"])
        return json_response(model_card(self._serving.engine, self._started))

    async def tokenize(self, request: Request) -> Response:
        """POST /tokenize: {count, max_model_len, tokens}."""
        serving = self._serving
        body = await serving.read(request, TokenizeBody)
        serving.check_model(body.model)
        if (body.prompt is None) == (body.messages is None):
            raise InvalidRequest("exactly one of prompt and messages is needed.")
        if body.prompt is not None:
            tokens = await serving.encode(body.prompt)
        else:
            tokens = (await self._chat.prompt(body)).token_ids
        result: dict[str, Any] = {
            "count": len(tokens),
            "max_model_len": serving.engine.max_model_len,
            "tokens": tokens,
            "token_strs": None,
        }
        if body.return_token_strs:
            result["token_strs"] = [serving.engine.tokenizer.token_text(i) for i in tokens]
        return json_response(result)

    async def detokenize(self, request: Request) -> Response:
        """POST /detokenize: {prompt}."""
        serving = self._serving
        body = await serving.read(request, DetokenizeBody)
        serving.check_model(body.model)
        tokenizer = serving.engine.tokenizer
        if body.tokens and max(body.tokens) >= tokenizer.vocab_size:
            raise InvalidRequest(
                f"token id {max(body.tokens)} is not in the vocabulary of {tokenizer.vocab_size}."
            )
        return json_response({"prompt": tokenizer.decode(body.tokens)})

    async def flush_cache(self, _request: Request) -> Response:
        """GET or POST /flush_cache; 400 while requests run or wait, as SGLang does."""
        if not self._serving.engine.scheduler.flush_cache():
            raise ApiError(400, "The cache was not flushed: requests are running or waiting.")
        return PlainTextResponse("Cache flushed.\n")

    async def abort_request(self, request: Request) -> Response:
        """POST /abort_request. 200 also where no request has that id: it may just have ended."""
        body = await self._serving.read(request, AbortBody)
        if body.abort_all == (body.rid is not None):
            raise InvalidRequest("either rid or abort_all is needed.")
        scheduler = self._serving.engine.scheduler
        aborted = scheduler.abort_all() if body.rid is None else int(scheduler.abort(body.rid))
        return json_response({"aborted": aborted})

    async def server_info(self, _request: Request) -> Response:
        """GET /server_info: version, flags, model, and the scheduler's numbers."""
        engine = self._serving.engine
        flags = engine.config.as_dict()
        return json_response(
            flags
            | {
                "version": engine_version(),
                "start_time": _STARTED,
                "max_model_len": engine.max_model_len,
                "vocab_size": engine.tokenizer.vocab_size,
                "internal_states": [engine.scheduler.gauges()],
            }
        )

    async def patches(self, _request: Request) -> Response:
        """GET /patches: every known patch with its state and its calls."""
        return json_response({"patches": self._serving.engine.ops.patch_states()})

    async def metrics(self, _request: Request) -> Response:
        """GET /metrics."""
        return Response(self._serving.engine.metrics.text(), media_type=CONTENT_TYPE)

    async def health(self, _request: Request) -> Response:
        """GET /health: the process answers."""
        return Response(status_code=200)

    async def health_generate(self, request: Request) -> Response:
        """GET /health_generate: one token has just been generated."""
        engine = self._serving.engine
        generation = Generation(
            engine.scheduler,
            engine.tokenizer,
            request_id=f"HEALTH_CHECK_{time.monotonic_ns()}",
            prompt_token_ids=engine.tokenizer.encode(engine.encoder.spec.bos),
            sampling=SamplingParams(max_tokens=1, temperature=0.0),
            text=TextOptions(),
            on_close=_unrecorded,
        )
        try:
            await unless_client_leaves(request.receive, _to_the_end(generation))
        finally:
            generation.close()
        return Response(status_code=200)


async def _to_the_end(generation: Generation) -> None:
    while generation.finish_reason is None:
        await generation.next()


def _unrecorded(generation: Generation) -> None:
    """A health check is no user's request: neither metrics nor the request log hold it."""


def engine_version() -> str:
    """Of the project, or "unknown" where it is not installed."""
    try:
        return version("fidelity-harness")
    except PackageNotFoundError:
        return "unknown"
