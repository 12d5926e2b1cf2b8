"""What each path of the server answers: pure functions of a request's JSON body."""

import json
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from reference import answers
from reference.arguments import refuse
from reference.asked import CONVERSATION, Asked, check_fields, read_asked, take
from reference.chat_message import assistant_message, refuse_other_parts
from reference.dumps import write_dump
from reference.encoding import render
from reference.encoding_constants import Constants, read_constants
from reference.greedy import Continuation, Scored, continued, scored
from reference.model import Model
from reference.tokenizer import Tokenizer

Json = dict[str, Any]
CHUNK = {False: "text_completion", True: "chat.completion.chunk"}


class Endpoints:
    """The model behind the paths. One request is computed at a time; the others wait."""

    def __init__(
        self, folder: Path, *, name: str, dtype: torch.dtype, limit: int, dumps: Path | None
    ) -> None:
        """Read the checkpoint; ValueError where it cannot be used."""
        self.model = Model(folder, dtype)
        self.tokenizer = Tokenizer(folder / "tokenizer.json")
        self.constants: Constants = read_constants(folder / "encoding.json")
        self.name, self.dtype, self.dumps = name, dtype, dumps
        self.limit = min(limit, self.model.config.max_position_embeddings)
        self._computing = threading.Lock()
        self._started = time.time()

    def models(self) -> Json:
        """GET /v1/models."""
        card: Json = {"id": self.name, "object": "model", "owned_by": "fidelity reference"}
        card |= {"created": int(self._started), "max_model_len": self.limit}
        return {"object": "list", "data": [card]}

    def server_info(self) -> Json:
        """GET /server_info."""
        return {
            "version": "reference",
            "model": self.name,
            "dtype": str(self.dtype).removeprefix("torch."),
            "max_model_len": self.limit,
            "vocab_size": self.model.config.vocab_size,
            "start_time": self._started,
        }

    def check_model(self, body: Json) -> None:
        """UnknownModel for another model than the one served; none named means that one."""
        if body.get("model") not in (None, self.name):
            named = json.dumps(body["model"])[:80]
            raise UnknownModel(f"model: {named}; accepted: {json.dumps(self.name)}")

    def tokenize(self, body: Json) -> Json:
        """POST /tokenize, of a prompt or of messages."""
        check_fields(body, frozenset({"prompt", *CONVERSATION}))
        if ("prompt" in body) == ("messages" in body):
            refuse("body", "prompt and messages" if "prompt" in body else "neither", "one of both")
        text = take(body, "prompt", str, "") if "prompt" in body else self._prompt(body)[0]
        ids = self.tokenizer.encode(text)
        return {"count": len(ids), "max_model_len": self.limit, "tokens": ids}

    def detokenize(self, body: Json) -> Json:
        """POST /detokenize."""
        return {"prompt": self.tokenizer.decode(_ids(body.get("tokens")))}

    def complete(self, body: Json) -> list[Json]:
        """POST /v1/completions: the answer, or the events of its stream."""
        asked = read_asked(body, chat=False)
        prompt = body.get("prompt")
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else _ids(prompt)
        found = self._generate(asked, ids)
        text, finish = self._text(asked, found)
        choice: Json = {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
        if asked.logprobs is not None:
            rows = self._of_answer(asked, ids, found)
            choice["logprobs"] = answers.completion_logprobs(self.tokenizer, rows)
        if asked.prompt_logprobs is not None:
            choice["prompt_logprobs"] = self._of_prompt(asked, ids, found.logits)
        if asked.return_token_ids:
            choice |= {"prompt_token_ids": ids, "token_ids": list(found.token_ids)}
        head = self._head(asked, "cmpl", CHUNK[False])
        return self._whole_or_events(asked, head, choice, ids, found)

    def chat(self, body: Json) -> list[Json]:
        """POST /v1/chat/completions: the answer, or the events of its stream."""
        asked = read_asked(body, chat=True)
        prompt, thinking = self._prompt(body)
        ids = self.tokenizer.encode(prompt)
        found = self._generate(asked, ids)
        text, finish = self._text(asked, found)
        message = assistant_message(self.constants, text, thinking=thinking, ended=finish == "stop")
        finish = "tool_calls" if "tool_calls" in message and finish == "stop" else finish
        choice: Json = {"index": 0, "message": message, "logprobs": None, "finish_reason": finish}
        if asked.logprobs is not None:
            rows = self._of_answer(asked, ids, found)
            choice["logprobs"] = answers.chat_logprobs(self.tokenizer, rows)
        if asked.return_token_ids:
            choice["token_ids"] = list(found.token_ids)
        head = self._head(asked, "chatcmpl", CHUNK[True] if asked.stream else "chat.completion")
        if asked.stream:
            choice["delta"] = choice.pop("message")
        if asked.prompt_logprobs is not None:
            head["prompt_logprobs"] = self._of_prompt(asked, ids, found.logits)
        if asked.return_token_ids:
            head["prompt_token_ids"] = ids
        return self._whole_or_events(asked, head, choice, ids, found)

    def _prompt(self, body: Json) -> tuple[str, bool]:
        """The rendered prompt, and whether the answer begins with reasoning."""
        messages, tools = take(body, "messages", list, []), take(body, "tools", list, [])
        if not all(isinstance(entry, dict) for entry in (*messages, *tools)):
            refuse("messages, tools", "an entry that is no object", "objects")
        refuse_other_parts(messages)
        options = take(body, "chat_template_kwargs", dict, {})
        if set(options) - {"thinking"}:
            refuse("chat_template_kwargs", ", ".join(options)[:80], "thinking")
        thinking = take(options, "thinking", bool, default=False)
        try:
            text = render(
                self.constants,
                messages,
                tools=tools,
                thinking=thinking,
                effort=take(body, "reasoning_effort", str, None),
                add_generation_prompt=take(body, "add_generation_prompt", bool, default=True),
            )
        except (KeyError, TypeError, AttributeError) as error:
            refuse(
                "messages, tools", f"a field is missing or of another type ({error!r})", "OpenAI's"
            )
        return text, text.endswith(self.constants.think_start)

    def _generate(self, asked: Asked, ids: Sequence[int]) -> Continuation:
        room = self.limit - len(ids)
        if not 1 <= asked.max_tokens <= room or not ids:
            wanted = f"{len(ids)} prompt tokens and {asked.max_tokens} more"
            refuse("prompt", wanted, f"at least 1, and {self.limit} in all")
        kept: dict[str, Tensor] = {}
        with self._computing:
            found = continued(
                self.model,
                ids,
                max_tokens=asked.max_tokens,
                ended=lambda tokens: self._ended(asked, tokens),
                record=kept.__setitem__ if self.dumps else None,
            )
            if self.dumps is not None:
                computed = [*ids, *found.token_ids[:-1]]
                write_dump(self.dumps, asked.request_id or secrets.token_hex(8), computed, kept)
        return found

    def _ended(self, asked: Asked, tokens: Sequence[int]) -> bool:
        if tokens[-1] in self.model.config.eos_token_ids and not asked.ignore_eos:
            return True
        text = self.tokenizer.decode(tokens) if asked.stops else ""
        return any(stop in text for stop in asked.stops)

    def _text(self, asked: Asked, found: Continuation) -> tuple[str, str]:
        """The text before EOS or the first stop string, and the finish reason."""
        tokens = found.token_ids
        eos = tokens[-1] in self.model.config.eos_token_ids and not asked.ignore_eos
        text = self.tokenizer.decode(tokens[:-1] if eos else tokens)
        places = [place for stop in asked.stops if (place := text.find(stop)) >= 0]
        cut = text[: min(places)] if places else text
        return cut, "stop" if eos or places else "length"

    def _of_answer(self, asked: Asked, ids: Sequence[int], found: Continuation) -> list[Scored]:
        return scored(found.logits[len(ids) - 1 :], found.token_ids, top=asked.logprobs or 0)

    def _of_prompt(self, asked: Asked, ids: Sequence[int], logits: Tensor) -> list[Json | None]:
        """From the given start on; the first token of all has nothing before it."""
        start = max(1, asked.prompt_logprobs_start)
        top = asked.prompt_logprobs or 0
        rows = scored(logits[start - 1 : len(ids) - 1], ids[start:], top=top)
        return answers.prompt_logprobs(self.tokenizer, [*[None] * (len(ids) - len(rows)), *rows])

    def _head(self, asked: Asked, prefix: str, kind: str) -> Json:
        identity = asked.request_id or f"{prefix}-{secrets.token_hex(12)}"
        return {"id": identity, "object": kind, "created": int(time.time()), "model": self.name}

    @staticmethod
    def _whole_or_events(
        asked: Asked, head: Json, choice: Json, ids: Sequence[int], found: Continuation
    ) -> list[Json]:
        """One body; or as a stream one event with everything, and one with the usage."""
        told = {"usage": answers.usage(len(ids), len(found.token_ids))}
        if not asked.stream:
            return [head | {"choices": [choice]} | told]
        return [
            head | {"choices": [choice]},
            *[head | {"choices": []} | told] * asked.include_usage,
        ]


class UnknownModel(LookupError):
    """The request names a model that is not served."""


def _ids(value: object) -> list[int]:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        refuse("token ids", json.dumps(value)[:80], "a list of whole numbers")
    return value


def error_body(message: str, kind: str = "invalid_request_error") -> Mapping[str, Any]:
    """A refusal in OpenAI's shape."""
    return {"error": {"message": message, "type": kind, "param": None, "code": None}}
