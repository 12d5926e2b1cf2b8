"""llama.cpp's server: it renders with /apply-template and counts plain text with /tokenize."""

from collections.abc import Sequence
from typing import Any

from fidelity.dialects.dialect import Dialect, Evidence, Post, TokenizeQuery, read_tokenized
from fidelity.endpoint import json_shape as shape
from fidelity.endpoint.replies import Tokenized


class _LlamaCpp(Dialect):
    __slots__ = ()

    def recognises(self, evidence: Evidence) -> bool:
        props = evidence.answers.get("/props")
        named = isinstance(props, dict) and "default_generation_settings" in props
        return evidence.owned_by == "llamacpp" or evidence.server.startswith("llama.cpp") or named

    async def tokenize(self, query: TokenizeQuery, post: Post) -> Tokenized:
        text = query.prompt or ""
        if query.messages is not None:
            body: dict[str, Any] = {"messages": list(query.messages)}
            if query.tools:
                body["tools"] = list(query.tools)
            if query.template_kwargs:
                body["chat_template_kwargs"] = dict(query.template_kwargs)
            rendered = shape.mapping(await post("/apply-template", body), "the answer")
            text = shape.text(rendered.get("prompt"), "prompt")
        return read_tokenized(
            await post(
                "/tokenize",
                {
                    "content": text,
                    "add_special": query.messages is not None,
                    "parse_special": query.messages is not None,
                },
            )
        )

    async def detokenize(self, model: str, tokens: Sequence[int], post: Post) -> str:
        del model
        answer = shape.mapping(await post("/detokenize", {"tokens": list(tokens)}), "the answer")
        return shape.text(answer.get("content"), "content")


LLAMACPP = _LlamaCpp(
    name="llamacpp",
    server_info_path="/props",
    tokenize_path="/tokenize",
    detokenize_path="/detokenize",
    queue_gauges=("llamacpp:requests_deferred",),
    running_gauges=("llamacpp:requests_processing",),
    thinking_keys=("enable_thinking",),
    unlock={
        "metrics": "--metrics",
        "tools": "--jinja, with a chat template that renders tools,",
        "reasoning": "--reasoning-format auto",
    },
)
