"""The chat encoder as it is deployed: the engine in a process of its own, asked over HTTP.

Suites import nothing of the engine, and one that runs is what a patch changes: the flag, the
request's word against it, and the encoder behind both. Started with the standard library alone, so
that no change of how the harness launches and asks servers ends the verdict's life.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx

ROOT = Path(__file__).resolve().parents[2]
MODEL = ROOT / "engine" / "checkpoints" / "tiny"
"""Its answers are never read, and it has the encoding of every checkpoint here."""
READY = "engine: ready on "
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
        RuntimeError: it did not start; its last words are in the message.
        ValueError: it refused a question.
    """
    with (
        _engine(flags) as url,
        httpx.Client(base_url=url, timeout=TIMEOUT_S, trust_env=False) as client,
    ):
        made = [_tokens(client, _body(question)) for question in questions]
        return Prompts(made, [_tokens(client, {"prompt": text}) for text in texts])


@contextmanager
def _engine(flags: Sequence[str]) -> Iterator[str]:
    """URL of an engine that is ready; ended in any case."""
    options = ("--model", str(MODEL), "--port", "0", "--device", "cpu", "--kernels", "torch")
    packages = os.pathsep.join(filter(None, sys.path))  # where this process finds them
    process = subprocess.Popen(
        [sys.executable, "-m", "engine", "serve", *options, *flags],
        cwd=ROOT,
        env={"PATH": os.defpath, "PYTHONPATH": packages, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        yield _address(process)
    finally:
        watchdog.cancel()
        process.kill()  # it holds nothing that must be put away
        process.communicate()


def _address(process: "subprocess.Popen[str]") -> str:
    said: list[str] = []
    for line in process.stdout or ():
        if line.startswith(READY):
            return line.removeprefix(READY).strip()
        said.append(line.strip()[:300])
    raise RuntimeError(f"the engine did not start; its last words: {' | '.join(said[-5:])}")


def _body(question: Asked) -> dict[str, Any]:
    said = {} if question.thinking is None else {"thinking": question.thinking}
    return {"messages": question.messages, "chat_template_kwargs": said}


def _tokens(client: httpx.Client, body: Mapping[str, Any]) -> list[int]:
    answer = client.post("/tokenize", json=body)
    if answer.status_code != httpx.codes.OK:
        raise ValueError(f"the engine's /tokenize: {answer.status_code} {answer.text[:300]}")
    tokens: list[int] = answer.json()["tokens"]
    return tokens
