"""The chat encoder as it is deployed: the engine in a process of its own, asked over HTTP.

Suites import nothing of the engine, and one that runs is what a patch changes: the flag, the
request's word against it, and the encoder behind both.
"""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from fidelity.config.deployment_spec import ServerSpec
from fidelity.config.redaction import Redactor
from fidelity.deployment.launch import launch
from fidelity.endpoint.transport import Transport

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "engine" / "checkpoints" / "tiny"
"""Its answers are never read, and it has the encoding of every checkpoint here."""
TIMEOUT_S = 120.0


class Asked(NamedTuple):
    """A conversation; whether the request asks for thinking, None: it does not say."""

    messages: list[dict[str, Any]]
    thinking: bool | None


class Prompts(NamedTuple):
    """Token ids of the engine's prompt of each question, and of each text that was given."""

    made: list[list[int]]
    wanted: list[list[int]]


def prompts(flags: Sequence[str], questions: Sequence[Asked], texts: Sequence[str]) -> Prompts:
    """Start the engine with these flags, and ask it what its prompts are.

    Args:
        flags: of `python -m engine serve`.
        questions: conversations.
        texts: what the prompts should be, to be tokenized alike.

    Raises:
        LaunchError: it did not start; its last words are in the message.
        ValueError: it refused a question.
    """
    return anyio.run(_prompts, flags, questions, texts)


async def _prompts(
    flags: Sequence[str], questions: Sequence[Asked], texts: Sequence[str]
) -> Prompts:
    words = ("{python}", "-m", "engine", "serve", "--model", str(MODEL), "--port", "{port}")
    spec = ServerSpec(
        name="engine", launch=(*words, "--device", "cpu", "--kernels", "torch", *flags), cwd=ROOT
    )
    redactor = Redactor()
    packages = os.pathsep.join(filter(None, sys.path))  # where this process finds them
    environ = {"PATH": os.defpath, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"}
    server = await launch(spec, extra=(), environ=environ, log_path=None, redactor=redactor)
    transport = Transport(server.command.root_url, redactor=redactor)
    try:
        url = f"{server.command.root_url}/tokenize"
        made = [await _tokens(transport, url, _body(question)) for question in questions]
        wanted = [await _tokens(transport, url, {"prompt": text}) for text in texts]
    finally:
        with anyio.CancelScope(shield=True):
            await transport.aclose()
            await anyio.to_thread.run_sync(server.stop)
    return Prompts(made, wanted)


def _body(question: Asked) -> dict[str, Any]:
    said = {} if question.thinking is None else {"thinking": question.thinking}
    return {"messages": question.messages, "chat_template_kwargs": said}


async def _tokens(transport: Transport, url: str, body: Mapping[str, Any]) -> list[int]:
    answer = await transport.fetch(
        "POST",
        url,
        content=json.dumps(body).encode(),
        headers={"Content-Type": "application/json"},
        timeout_s=TIMEOUT_S,
    )
    if answer.status != 200:
        raise ValueError(f"the engine's /tokenize: {answer.status} {answer.body[:300]!r}")
    tokens: list[int] = json.loads(answer.body)["tokens"]
    return tokens
