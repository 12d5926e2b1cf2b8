"""How fast the engine is over HTTP: a server in its own process, a client in this one.

    python -m benchmarks.http_speed --out benchmarks/results/NAME.json

Prompts are random token ids, so that nothing is cached; answers are streamed and of equal length.
A decode rate counts the tokens between the first and the last of a stream, over all streams.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx

from benchmarks.engine_speed import CHECKPOINT, ROOT, git_commit, machine, random_tokens, shown

PROMPT_TOKENS = 256
DECODE_TOKENS = 128
VOCABULARY = 1280
MODEL = "measured"


def main() -> None:
    options = _parser().parse_args()
    command = [sys.executable, "-m", "engine", "serve", "--port", "0"]
    command += ["--model", str(options.model), "--served-model-name", MODEL]
    server = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        url = next(line.split()[-1] for line in server.stderr if "ready on" in line)
        record = {
            "what": "engine speed over HTTP, one server process, one client process",
            "command": ["python", "-m", "benchmarks.http_speed", *sys.argv[1:]],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": machine("cpu"),
            "git_commit": git_commit(),
            "checkpoint": shown(options.model),
            "load_before": os.getloadavg(),
            **asyncio.run(measure(url, options)),
            "load_after": os.getloadavg(),
        }
    finally:
        server.terminate()
        server.wait(10)
    for kind, key in (("prefill", "tokens"), ("decode", "batch")):
        for row in record[kind]:
            print(f"{kind:8} {row[key]:6} {max(row['tokens_per_s']):10.0f} tok/s")
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")


async def measure(url: str, options: argparse.Namespace) -> dict[str, Any]:
    async with httpx.AsyncClient(base_url=url, timeout=120, trust_env=False) as client:
        await stream(client, 1, 8, seed=0)
        return {
            "prefill": [
                {
                    "tokens": tokens,
                    "tokens_per_s": [
                        await prefill(client, tokens, seed=100 * tokens + n)
                        for n in range(options.repeats)
                    ],
                }
                for tokens in options.prefills
            ],
            "decode": [
                {
                    "batch": batch,
                    "tokens_per_s": [
                        await decode(client, batch, seed=10_000 * batch + 1_000 * n)
                        for n in range(options.repeats)
                    ],
                }
                for batch in options.batches
            ],
        }


async def prefill(client: httpx.AsyncClient, tokens: int, *, seed: int) -> float:
    began = time.perf_counter()
    await stream(client, tokens, 1, seed=seed)
    return tokens / (time.perf_counter() - began)


async def decode(client: httpx.AsyncClient, batch: int, *, seed: int) -> float:
    spans = await asyncio.gather(
        *(stream(client, PROMPT_TOKENS, DECODE_TOKENS, seed=seed + row) for row in range(batch))
    )
    # While all streams run: from the last first token to the first last one.
    began, ended = max(first for first, _ in spans), min(last for _, last in spans)
    whole = min(first for first, _ in spans), max(last for _, last in spans)
    if ended <= began:
        began, ended = whole
    done = sum((DECODE_TOKENS - 1) * (ended - began) / (last - first) for first, last in spans)
    return done / (ended - began)


async def stream(
    client: httpx.AsyncClient, tokens: int, answer: int, *, seed: int
) -> tuple[float, float]:
    """Times of the first and the last token of one stream."""
    body = {
        "model": MODEL,
        "prompt": random_tokens(VOCABULARY, tokens, seed),
        "max_tokens": answer,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
    }
    first = last = 0.0
    async with client.stream("POST", "/v1/completions", json=body) as response:
        response.raise_for_status()
        async for line in response.aiter_lines():
            if line.startswith("data: {"):
                last = time.perf_counter()
                first = first or last
    return first, last


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.http_speed")
    parser.add_argument("--model", type=Path, default=CHECKPOINT)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prefills", type=_numbers, default=[1024, 2048, 4096, 8192])
    parser.add_argument("--batches", type=_numbers, default=[1, 16, 32])
    parser.add_argument("--out", type=Path)
    return parser


def _numbers(text: str) -> list[int]:
    return [int(word) for word in text.split(",")]


if __name__ == "__main__":
    main()
