"""The figures published about the patches, measured again at V4-Flash shapes.

    python benchmarks/patch_numbers.py --device cuda --table docs/patch-numbers.md \
        --json benchmarks/results/patch-numbers-h200.json

Inputs are drawn as trained ones are spread. Then the same on the nano checkpoint's own weights and
what they make of long prompts (`--checkpoint` takes another one; on the CPU one short prompt).
Errors are against the same maths in float64. Times are medians of CUDA events.
"""

import argparse
import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from torch import Tensor  # noqa: E402

from benchmarks.figures import (  # noqa: E402
    PAGE,
    Figure,
    cosine,
    decode_batch,
    ops_with,
    relative,
)
from benchmarks.nano_numbers import nano_figures  # noqa: E402
from kernels import Settings  # noqa: E402
from kernels.baseline import mhc as plain_mhc  # noqa: E402
from reference import attention, indexer, mhc  # noqa: E402

HIDDEN, STREAMS, HEADS, DIM, ROPE, WINDOW = 4096, 4, 64, 512, 64, 128
INDEX_HEADS, INDEX_DIM, M = 64, 128, 4
EPS = {"rms_eps": 1e-6, "hc_eps": 1e-6, "iters": 20}
AT = ", at V4-Flash"
LENGTHS = (1_000, 2_500, 5_500, 11_000, 22_000)


SETTINGS = Settings(
    index_topk=512, index_head_dim=INDEX_DIM, head_dim=DIM, rope_dim=ROPE, implementation="torch"
)
NANO = ROOT / "engine" / "checkpoints" / "nano"
NANO_LENGTHS = {"cpu": (1_000,), "cuda": (1_000, 2_500, 5_500)}


def site(hidden: int, device: torch.device) -> dict[str, Tensor]:
    """Weights of one mixing site: small products, comb near the identity."""
    rows = (2 + STREAMS) * STREAMS
    base = torch.randn(rows, device=device) * 0.5
    base[2 * STREAMS :] += 2.5 * torch.eye(STREAMS, device=device).flatten()
    fn = torch.randn(rows, STREAMS * hidden, device=device) * (STREAMS * hidden) ** -0.5
    return {"fn": fn, "base": base, "scale": torch.randn(3, device=device) * 0.3 + 1}


def run_mhc(
    op: Callable[..., Any], sites: list[dict[str, Tensor]], start: Tensor, *, bf16_streams: bool
) -> dict[int, Tensor]:
    """Streams after each depth; the sublayer is tanh of the normed input, shuffled."""
    x, kept = start, {}
    for layer, weights in enumerate(sites, 1):
        y, post, comb = op(x, *(weights[k] for k in ("fn", "base", "scale")), **EPS)
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        f = torch.tanh(y.roll(layer * 37, dims=-1))
        x = mhc.mhc_post(f, x, post, comb)
        x = x.bfloat16().to(x.dtype) if bf16_streams else x
        if layer in (1, 21, 43, 61):
            kept[layer] = x
    return kept


def mhc_figures(device: torch.device, tokens: int) -> list[Figure]:
    op = ops_with("mhc_bf16", device, SETTINGS).mhc_pre
    sites = [site(HIDDEN, device) for _ in range(61)]
    start = torch.randn(tokens, 1, HIDDEN, device=device).bfloat16().float()
    start = start.expand(-1, STREAMS, -1).contiguous()
    wide = [{k: v.double() for k, v in s.items()} for s in sites]
    truth = run_mhc(mhc.mhc_pre, wide, start.double(), bf16_streams=False)
    found = []
    for name, streams in (("product in bf16", False), ("product and streams in bf16", True)):
        made = run_mhc(op, sites, start, bf16_streams=streams)
        errors = {n: relative(made[n], truth[n]) for n in made}
        angles = {n: cosine(made[n], truth[n]) for n in made}
        found.append(
            Figure(
                f"mHC, {name}: relative error after 1 layer",
                "2.9e-3",
                f"{errors[1]:.1e}",
                "published with every tensor of the layer in bf16" if not streams else "",
            )
        )
        found += [
            Figure(
                f"mHC, {name}: cosine after {n} layers",
                "> .99993" if n == 21 else "-",
                f"{angles[n]:.6f}",
                "",
            )
            for n in (21, 43, 61)
        ]
    return found


def splitk_figures(device: torch.device, tokens: int) -> list[Figure]:
    ops, found = ops_with("splitk_decode", device, SETTINGS), []
    for topk in (512, 1024):
        position = 6_000
        batch = decode_batch([position] * tokens, device)
        pages = int(batch.page_table.max()) + 1
        window = torch.randn(pages, PAGE, DIM, device=device).bfloat16()
        entries = torch.randn(pages, PAGE // M, DIM, device=device).bfloat16()
        q = torch.randn(tokens, HEADS, DIM, device=device).bfloat16()
        sinks = torch.randn(HEADS, device=device)
        seen = (position + 1) // M
        picks = torch.stack([torch.randperm(seen, device=device)[:topk] for _ in range(tokens)])
        picks = picks.sort(dim=1).values.int()
        options = {"window": WINDOW, "m": M, "scale": DIM**-0.5, "batch": batch}
        made = ops.sparse_attention(q, window, entries, picks, sinks, **options)
        errors = []
        for t in range(tokens):
            rows = batch.page_table[t].long()
            kv = window[rows].flatten(0, 1)[: position + 1].double()
            own = entries[rows].flatten(0, 1)[:seen].double()
            truth = attention.sparse_attention(
                q[t : t + 1].double(),
                kv,
                own,
                picks[t : t + 1],
                sinks.double(),
                positions=batch.positions[t : t + 1],
                window=WINDOW,
                m=M,
                scale=DIM**-0.5,
            )
            errors.append(relative(made[t : t + 1], truth))
        found.append(
            Figure(
                f"split-K decode, 64 heads x 512, top-k {topk}: worst relative error of a token",
                "<= 6.7e-3",
                f"{max(errors):.1e}",
                "random rows; bf16 output included",
            )
        )
    return found


def index_figures(device: torch.device, tokens: int) -> list[Figure]:
    ops = ops_with("indexer_triton", device, SETTINGS)
    found, jaccards, lost, errors = [], {512: [], 1024: []}, 0, []  # type: ignore[var-annotated]
    for length in LENGTHS:
        batch = decode_batch([length - 1] * tokens, device)
        entries = length // M
        storage = ops.index_keys.allocate(
            int(batch.page_table.max()) + 1, PAGE // M, INDEX_DIM, device
        )
        q = torch.randn(tokens, INDEX_HEADS, INDEX_DIM, device=device)
        weights = (
            torch.randn(tokens, INDEX_HEADS, device=device) * (INDEX_HEADS * INDEX_DIM) ** -0.5
        )
        keys = torch.randn(tokens, entries, INDEX_DIM, device=device)
        needles = torch.randint(entries, (tokens,), device=device)
        direction = (weights.clamp(min=0)[:, :, None] * q).sum(1)
        keys[torch.arange(tokens, device=device), needles] = (
            direction / direction.norm(dim=1, keepdim=True) * INDEX_DIM**0.5 * 1.5
        )
        at = torch.arange(entries, dtype=torch.int32, device=device)
        for t in range(tokens):
            ops.index_keys.store(storage, keys[t], torch.full_like(at, t), at, M, batch)
        for t in range(tokens):
            one = (q[t : t + 1], keys[t], weights[t : t + 1])
            truth = indexer.index_scores(*(x.double() for x in one))
            rounded = indexer.index_scores(
                *(x.bfloat16().double() for x in one[:2]), one[2].double()
            )
            errors.append(float((rounded - truth).abs().max() / truth.abs().max()))
            for topk, kept in jaccards.items():
                best = set(truth[0].topk(min(topk, entries)).indices.tolist())
                made = ops.index_select(q, weights, storage, m=M, topk=topk, batch=batch)[t]
                got = set(made[made >= 0].tolist())
                kept.append(len(best & got) / len(best | got))
                lost += int(needles[t]) not in got
    found.append(
        Figure(
            "index logits, bf16 against fp32: largest difference over largest logit",
            "about 4e-4",
            f"{sorted(errors)[len(errors) // 2]:.1e} (median), {max(errors):.1e} (worst)",
            "",
        )
    )
    found += [
        Figure(
            f"selected sets at top-k {topk}, 1k..22k tokens: Jaccard",
            "0.98-1.0",
            f"{min(kept):.3f}-{max(kept):.3f}",
            "",
        )
        for topk, kept in jaccards.items()
    ]
    found.append(Figure("planted needles lost, 1k..22k tokens", "0", str(lost), ""))
    return found


def median_ms(run: Callable[[], Any], repeats: int = 20) -> float:
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return sorted(times)[repeats // 2]


def indexer_speed(device: torch.device, tokens: int) -> Figure:
    """Scores up to a context limit of 17 times the real length, over scores up to that length."""
    from kernels.gpu.indexer_triton import run_scores

    ops, real, times = ops_with("indexer_triton", device, SETTINGS), 7_710, 17
    timed = []
    for length in (real, real * times):
        batch = decode_batch([length - 1] * tokens, device)
        pages = int(batch.page_table.max()) + 1
        storage = ops.index_keys.allocate(pages, PAGE // M, INDEX_DIM, device)
        q = torch.randn(tokens, INDEX_HEADS, INDEX_DIM, device=device)
        weights = torch.randn(tokens, INDEX_HEADS, device=device)
        scores = torch.empty(tokens, length // M, device=device)
        given = {"m": M, "batch": batch}
        timed.append(median_ms(partial(run_scores, q, weights, storage, scores, **given)))
    return Figure(
        f"indexer scores, {tokens} tokens at {real}: time for a limit {times} x as long over its"
        " own",
        "about 17 x",
        f"{timed[1] / timed[0]:.1f} x ({timed[1]:.2f} ms / {timed[0]:.2f} ms)",
        "few tokens do not fill the GPU, so that the longer row is cheaper" if tokens < 64 else "",
    )


def speed_figures(device: torch.device) -> list[Figure]:
    found = [indexer_speed(device, tokens) for tokens in (32, 512)]
    op, weights = ops_with("mhc_bf16", device, SETTINGS).mhc_pre, site(HIDDEN, device)
    for tokens in (64, 4_096):
        x = torch.randn(tokens, STREAMS, HIDDEN, device=device)
        arguments = (x, *(weights[k] for k in ("fn", "base", "scale")))
        fused = median_ms(partial(op, *arguments, **EPS))
        eager = median_ms(partial(plain_mhc.mhc_pre, *arguments, **EPS))
        what = f"mHC site, {tokens} tokens, fp32 streams: fused kernel, eager fp32 torch"
        found.append(Figure(what, "-", f"{fused:.2f} ms, {eager:.2f} ms", ""))
    return found


def markdown(figures: list[Figure], device: str) -> str:
    lines = [
        "# Published figures of the patches, measured again",
        "",
        f"On {device}, by",
        f"`python benchmarks/patch_numbers.py --device cuda --table docs/patch-numbers.md`{AT}",
        "shapes (hidden 4096, head dim 512, 64 heads, index 64 x 128) with random inputs spread as",
        "trained ones are. Nano's own: the weights of the nano checkpoint, on what it computes of",
        "prompts with one fact among numbered lines. A dash: nothing was published.",
        "",
        "| figure | published | ours | note |",
        "|---|---|---|---|",
        *(f"| {f.what} | {f.published} | {f.ours} | {f.why} |" for f in figures),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--checkpoint", type=Path, default=NANO)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--table", type=Path)
    chosen = parser.parse_args()
    device = torch.device(chosen.device)
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    label = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    label += f", torch {torch.__version__}"
    figures = mhc_figures(device, chosen.tokens) + splitk_figures(device, min(8, chosen.tokens))
    figures += index_figures(device, min(4, chosen.tokens))
    figures += nano_figures(chosen.checkpoint, device, NANO_LENGTHS[device.type])
    if device.type == "cuda":
        figures += speed_figures(device)
    table = markdown(figures, label)
    print(table)
    if chosen.table:
        chosen.table.write_text(table)
    if chosen.json:
        rows = [figure._asdict() for figure in figures]
        chosen.json.write_text(json.dumps({"device": label, "figures": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
