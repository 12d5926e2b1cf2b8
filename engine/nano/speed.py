"""Milliseconds of a training step by row length and kind, eager and as a replayed graph."""

import time

import numpy as np
import torch

from engine.nano.config import PRESETS
from engine.nano.fused_check import check_fused
from engine.nano.optimizer import Optimizer
from engine.nano.parameters import initial_parameters
from engine.nano.schedule import LENGTHS
from engine.nano.steps import Steps
from engine.nano.twin import Twin
from engine.nano.weights import Weights

_REPEATS = 5


def measure_speed(preset: str, step_tokens: int, *, profile: bool) -> None:
    """Print the table; with `profile`, also where the time of one step of 1,024-token rows goes."""
    config = PRESETS[preset]
    device = torch.device("cuda")
    torch.set_float32_matmul_precision("high")
    weights = Weights(config, initial_parameters(config, 1), torch.bfloat16).to(device)
    check = check_fused(device, config.hidden, config.hc_eps)
    print(check.line())
    twin = Twin(weights, fused=check.ok)
    steps = Steps(twin, Optimizer(weights, muon_rate=0.0, adam_rate=0.0), graphs=True)
    rng = np.random.default_rng(1)
    for length in LENGTHS:
        rows = max(1, step_tokens // length)
        ids = rng.integers(10, config.vocab_size, (rows, length + 1)).astype(np.int16)
        batch = (ids, np.full((rows, length), 255, np.uint8))
        for kind in ("dense", "index", "narrow"):
            times = []
            for _ in range(3 + _REPEATS):
                torch.cuda.synchronize()
                begun = time.monotonic()
                steps.run(batch, kind, rate=1.0, balance=0.0, width=32)
                torch.cuda.synchronize()
                times.append((time.monotonic() - begun) * 1e3)
            eager, captured, replays = times[0], times[1], sorted(times[3:])
            print(
                f"{length:5d} {kind:6s} first {eager:7.1f} ms, capture {captured:7.1f} ms, "
                f"replay {replays[len(replays) // 2]:6.1f} ms, "
                f"{torch.cuda.max_memory_reserved() / 2**30:.0f} GiB",
                flush=True,
            )
    if profile:
        _profile(twin, weights, step_tokens)


def _profile(twin: Twin, weights: Weights, step_tokens: int) -> None:
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    steps = Steps(twin, Optimizer(weights, muon_rate=0.0, adam_rate=0.0), graphs=False)
    ids = np.full((step_tokens // 1024, 1025), 20, np.int16)
    batch = (ids, np.full((step_tokens // 1024, 1024), 255, np.uint8))
    for _ in range(2):
        begun = time.monotonic()
        steps.run(batch, "dense", rate=1.0, balance=0.0, width=32)
        torch.cuda.synchronize()
        print(f"eager {1e3 * (time.monotonic() - begun):.1f} ms")
    with profiler(activities=[ProfilerActivity.CUDA, ProfilerActivity.CPU]) as found:
        steps.run(batch, "dense", rate=1.0, balance=0.0, width=32)
        torch.cuda.synchronize()
    table = found.key_averages().table(
        sort_by="self_cuda_time_total", row_limit=30, max_name_column_width=70
    )
    print(table)
