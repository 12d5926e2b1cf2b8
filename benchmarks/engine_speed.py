"""How fast the engine is, in one process and without HTTP: decode and prefill tokens a second.

    python -m benchmarks.engine_speed --out benchmarks/results/NAME.json [--baseline]

Every repeat is kept, with the machine, the load before and after, the date and the command.
`--baseline` measures `transformers` on the same checkpoint and shapes, in a process of its own that
cannot see this checkout. Run it on a quiet machine: two busy neighbours halve every figure.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from engine.config import EngineConfig
from engine.core import Engine
from engine.sequence import EngineRequest, SamplingParams

ROOT = Path(__file__).parents[1]
CHECKPOINT = ROOT / "engine" / "checkpoints" / "nano"
DECODE_PROMPT_TOKENS = 256
DECODE_TOKENS = 64


def main() -> None:
    options = _parser().parse_args()
    torch.set_num_threads(options.threads)
    record: dict[str, Any] = {
        "what": "engine speed, in process",
        "command": ["python", "-m", "benchmarks.engine_speed", *sys.argv[1:]],
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(options.device),
        "git_commit": git_commit(),
        "checkpoint": shown(options.model),
        "load_before": os.getloadavg(),
        "decode_prompt_tokens": DECODE_PROMPT_TOKENS,
        "decode_tokens": DECODE_TOKENS,
    }
    engine = Engine(
        EngineConfig(
            model=str(options.model),
            device=options.device,
            threads=options.threads,
            kernels=options.kernels,
            patches=tuple(options.patch),
            chunk_tokens=options.chunk_tokens,
            max_running_requests=max(options.batches),
            disable_prefix_cache=True,
        )
    )
    record["engine"] = {
        "implementation": engine.ops.implementation,
        "chunk_tokens": options.chunk_tokens,
        "patches": engine.ops.patch_states(),
        "prefill": [prefill(engine, n, options.repeats) for n in options.prefills],
        "decode": [decode(engine, n, options.repeats) for n in options.batches],
    }
    if options.baseline:
        record["transformers"] = baseline(options)
    record["load_after"] = os.getloadavg()
    report(record)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(record, indent=1) + "\n")


def shown(path: Path) -> str:
    """A path without the folder that this checkout happens to lie in."""
    inside = path.resolve().is_relative_to(ROOT)
    return str(path.resolve().relative_to(ROOT) if inside else path)


def prefill(engine: Engine, tokens: int, repeats: int) -> dict[str, Any]:
    """Tokens a second of reading one prompt, until its first token is drawn."""
    rates = []
    for repeat in range(repeats):
        prompt = random_tokens(engine.architecture.vocab_size, tokens, repeat)
        began = time.perf_counter()
        engine.generate([prompt], SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True))
        rates.append(tokens / (time.perf_counter() - began))
    return {"tokens": tokens, "tokens_per_s": rates}


def decode(engine: Engine, batch: int, repeats: int) -> dict[str, Any]:
    """Tokens a second over all sequences of a batch of equal lengths, prompts read before."""
    sampling = SamplingParams(max_tokens=DECODE_TOKENS + 1, temperature=0.0, ignore_eos=True)
    rates = []
    for repeat in range(repeats):
        outputs: list[list[Any]] = [[] for _ in range(batch)]
        for row in range(batch):
            prompt = random_tokens(
                engine.architecture.vocab_size, DECODE_PROMPT_TOKENS, 1000 * repeat + row
            )
            engine.scheduler.submit(
                EngineRequest(
                    request_id=f"decode-{row}",
                    prompt_token_ids=prompt,
                    sampling=sampling,
                    on_output=outputs[row].append,
                )
            )
        while not all(outputs):
            engine.scheduler.step()
        drawn = sum(len(o) for o in outputs)
        began = time.perf_counter()
        while engine.scheduler.step():
            pass
        elapsed = time.perf_counter() - began
        rates.append((sum(len(o) for o in outputs) - drawn) / elapsed)
    return {"batch": batch, "tokens_per_s": rates}


def baseline(options: argparse.Namespace) -> dict[str, Any]:
    """The same figures of `transformers`, from its own process outside the checkout."""
    script = Path(__file__).with_name("transformers_speed.py")
    shapes = {
        "checkpoint": str(options.model.resolve()),
        "threads": options.threads,
        "prefills": options.baseline_prefills,
        "batches": options.batches,
        "repeats": options.repeats,
        "decode_prompt_tokens": DECODE_PROMPT_TOKENS,
        "decode_tokens": DECODE_TOKENS,
    }
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-P", script.resolve(), json.dumps(shapes)],
            cwd=folder,
            env={"OMP_NUM_THREADS": str(options.threads), "HF_HUB_OFFLINE": "1", "HOME": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        sys.exit(f"the transformers baseline failed: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def random_tokens(vocab_size: int, count: int, seed: int) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    tokens: list[int] = torch.randint(3, vocab_size, (count,), generator=generator).tolist()
    return tokens


def machine(device: str) -> dict[str, Any]:
    cpu = platform.processor()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line for line in info.read_text().splitlines() if line.startswith("model name")]
        cpu = names[0].split(":", 1)[1].strip() if names else cpu
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }


def git_commit() -> str:
    done = subprocess.run(
        ["git", "-C", str(ROOT), "rev-parse", "HEAD"], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def report(record: dict[str, Any]) -> None:
    """Print the best repeat of each shape, and how many times the baseline's best that is."""
    other = record.get("transformers", {})
    for kind, key in (("prefill", "tokens"), ("decode", "batch")):
        theirs = {row[key]: max(row["tokens_per_s"]) for row in other.get(kind, [])}
        for row in record["engine"][kind]:
            best = max(row["tokens_per_s"])
            times = f"  {best / theirs[row[key]]:.1f} x" if row[key] in theirs else ""
            print(f"{kind:8} {row[key]:6} {best:9.0f} tok/s{times}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.engine_speed")
    parser.add_argument("--model", type=Path, default=CHECKPOINT)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--kernels", default="auto")
    parser.add_argument("--patch", action="append", default=[])
    parser.add_argument("--chunk-tokens", type=int, default=256)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--prefills", type=_numbers, default=[256, 1024, 2048, 4096, 8192])
    parser.add_argument("--batches", type=_numbers, default=[1, 16, 32, 64])
    parser.add_argument("--baseline", action="store_true")
    parser.add_argument("--baseline-prefills", type=_numbers, default=[256, 1024, 2048, 4096])
    parser.add_argument("--out", type=Path)
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
