"""The request log, in SGLang's line formats, so that tools made for its logs read ours.

    [2026-01-31 12:00:00] Receive OpenAI: obj={'model': …}
    [2026-01-31 12:00:00] Receive: obj=GenerateReqInput(rid='…', …)
    [2026-01-31 12:00:00] Finish: obj=GenerateReqInput(rid='…', …), out={'text': …, 'meta_info': …}

Levels: 0 ids and outcomes; 1 also sampling parameters; 2 also texts and token ids, shortened; 3
everything. With format json each message is one JSON object. Headers are never logged.
"""

import datetime as dt
import json
import logging
import logging.handlers
import socket
import sys
import time
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from engine.config import EngineConfig
from engine.errors import ConfigError
from engine.generation import Generation
from engine.protocol import GenerationBody
from engine.sequence import SamplingParams

SHORTENED = 2048  # characters of a text, items of a list
WHOLE = 1 << 30
_TEXTS = frozenset({"text", "input_ids", "input_embeds", "image_data", "audio_data", "lora_path"})
_ANSWERS = frozenset({"text", "output_ids"})


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateReqInput:
    """A request as SGLang logs it: the fields of its own object that exist here, in its order."""

    rid: str
    session_id: str | None = None
    text: str | None = None
    input_ids: list[int]
    input_embeds: None = None
    image_data: None = None
    video_data: None = None
    audio_data: None = None
    sampling_params: dict[str, Any]
    return_logprob: bool
    logprob_start_len: int
    top_logprobs_num: int
    stream: bool
    lora_path: None = None
    bootstrap_room: int | None = None


class RequestLog:
    """Writes one server's request log. Thread-safe, as logging handlers are."""

    def __init__(self, config: EngineConfig) -> None:
        """Raises: ConfigError: the target cannot be written."""
        self.enabled = config.log_requests
        self._level = config.log_requests_level
        self._json = config.log_requests_format == "json"
        self._limit = SHORTENED if self._level <= 2 else WHOLE
        self._live: dict[str, tuple[GenerateReqInput, Generation]] = {}
        self._handler = _handler(config.log_requests_target) if self.enabled else None

    def received_openai(self, body: msgspec.Struct) -> None:
        """Before anything is made of it, and so without an id."""
        if self.enabled and self._level >= 2:
            self._write(
                "request.received.openai", "Receive OpenAI", obj=_present(msgspec.to_builtins(body))
            )

    def received(
        self, generation: Generation, sampling: SamplingParams, body: GenerationBody
    ) -> None:
        """When it has been accepted."""
        if not self.enabled:
            return
        entry = GenerateReqInput(
            rid=generation.request_id,
            input_ids=generation.prompt_token_ids,
            sampling_params=_sampling(sampling, body),
            return_logprob=sampling.logprobs is not None or sampling.prompt_logprobs is not None,
            logprob_start_len=-1
            if sampling.prompt_logprobs is None
            else sampling.prompt_logprobs_start,
            top_logprobs_num=max(sampling.logprobs or 0, sampling.prompt_logprobs or 0),
            stream=bool(body.stream),
        )
        self._live[generation.request_id] = (entry, generation)
        self._write("request.received", "Receive", rid=entry.rid, obj=entry)

    def finished(self, generation: Generation) -> None:
        """When it is over, whatever ended it."""
        entry, logged = self._live.pop(generation.request_id, (None, None))
        if not self.enabled or entry is None or logged is not generation:
            return
        if self._level >= 2:
            entry = replace(entry, text=generation.prompt_text())
        self._write("request.finished", "Finish", rid=entry.rid, obj=entry, out=_out(generation))

    def _write(
        self,
        event: str,
        verb: str,
        *,
        obj: object,
        rid: str | None = None,
        out: dict[str, Any] | None = None,
    ) -> None:
        skip, skip_out = self._skipped()
        if self._json:
            line: dict[str, Any] = {"timestamp": _now(), "event": event}
            if rid is not None:
                line["rid"] = rid
            line["obj"] = shortened_json(obj, self._limit, skip)
            if out is not None:
                line["out"] = shortened_json(out, self._limit, skip_out)
            self._emit(json.dumps(line, ensure_ascii=False))
            return
        text = f"{verb}: obj={shortened_text(obj, self._limit, skip)}"
        if out is not None:
            text += f", out={shortened_text(out, self._limit, skip_out)}"
        self._emit(text)

    def _emit(self, message: str) -> None:
        if self._handler is not None:
            self._handler.handle(logging.makeLogRecord({"msg": message}))

    def _skipped(self) -> tuple[frozenset[str], frozenset[str]]:
        """Names left out at the top of the request and of the answer, by level."""
        if self._level >= 2:
            return frozenset(), frozenset()
        return _TEXTS | ({"sampling_params"} if self._level == 0 else set()), _ANSWERS


def shortened_text(value: object, limit: int, skip: frozenset[str] = frozenset()) -> str:
    """A Python-like rendering. Long strings and lists show both ends around ` ... `.

    A shortened string is two literals; names in `skip` are left out at the top level only.
    """
    half = limit // 2
    if isinstance(value, str):
        if len(value) > limit:
            return f"{value[:half]!r} ... {value[-half:]!r}"
        return repr(value)
    if isinstance(value, list | tuple):
        return f"{value[:half]} ... {value[-half:]}" if len(value) > limit else str(value)
    if isinstance(value, dict):
        items = (f"{k!r}: {shortened_text(v, limit)}" for k, v in value.items() if k not in skip)
        return "{" + ", ".join(items) + "}"
    if isinstance(value, GenerateReqInput):
        items = (f"{k}={shortened_text(v, limit)}" for k, v in _items(value) if k not in skip)
        return f"{type(value).__name__}({', '.join(items)})"
    return str(value)


def shortened_json(value: object, limit: int, skip: frozenset[str] = frozenset()) -> Any:
    """The same for JSON: one string `first...last`, and "..." as an item of a list."""
    half = limit // 2
    if isinstance(value, str):
        return f"{value[:half]}...{value[-half:]}" if len(value) > limit else value
    if isinstance(value, list | tuple):
        if len(value) > limit:
            return [*value[:half], "...", *value[-half:]]
        return [shortened_json(item, limit) for item in value]
    if isinstance(value, GenerateReqInput):
        value = dict(_items(value))
    if isinstance(value, dict):
        return {k: shortened_json(v, limit) for k, v in value.items() if k not in skip}
    return value


def _items(entry: GenerateReqInput) -> list[tuple[str, Any]]:
    return [(f.name, getattr(entry, f.name)) for f in fields(entry)]


def _present(value: Any) -> Any:
    """Plain data without its nulls."""
    if isinstance(value, dict):
        return {name: _present(item) for name, item in value.items() if item is not None}
    return [_present(item) for item in value] if isinstance(value, list) else value


def _sampling(sampling: SamplingParams, body: GenerationBody) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "max_new_tokens": sampling.max_tokens,
        "stop": list(body.stops()),
        "stop_token_ids": list(sampling.stop_token_ids),
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "ignore_eos": sampling.ignore_eos,
        "skip_special_tokens": body.skip_special_tokens,
        "n": 1,
        "sampling_seed": sampling.seed,
    }


def _out(generation: Generation) -> dict[str, Any]:
    usage = generation.usage
    ended, now = generation.ended_s or generation.began_s, time.time()
    return {
        "text": "".join(generation.text),
        "output_ids": usage.token_ids,
        "meta_info": {
            "id": generation.request_id,
            "finish_reason": _finish(generation),
            "prompt_tokens": usage.prompt_tokens,
            "completion_tokens": usage.completion_tokens,
            "cached_tokens": usage.cached_tokens,
            "weight_version": "default",
            "e2e_latency": ended - generation.began_s,
            "response_sent_to_client_ts": now,
        },
    }


def _finish(generation: Generation) -> dict[str, Any]:
    reason = generation.finish_reason
    if reason == "stop":
        return {"type": "stop", "matched": generation.matched_stop}
    if reason == "length":
        return {"type": "length", "length": generation.usage.completion_tokens}
    return {"type": reason}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat()


def _handler(target: str) -> logging.Handler:
    """stdout, a file, or (an existing folder) an hourly file named after the host."""
    handler: logging.Handler
    if target == "stdout":
        handler = logging.StreamHandler(sys.stdout)
    else:
        path = Path(target)
        if path.is_dir():
            path = path / f"{socket.gethostname()}_0.log"
        try:
            handler = logging.handlers.TimedRotatingFileHandler(path, when="H", encoding="utf-8")
        except OSError as error:
            raise ConfigError(
                f"--log-requests-target {target} cannot be written: {error.strerror}."
            ) from error
    handler.setFormatter(logging.Formatter("[%(asctime)s] %(message)s", "%Y-%m-%d %H:%M:%S"))
    return handler
