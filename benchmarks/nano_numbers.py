"""The same figures with a checkpoint's own weights, on what they make of long prompts.

A prompt of numbered lines with one fact in it, asked at the end and answered: the reference
model computes it in float32, and each patch gets the inputs that it would have had there.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from benchmarks.figures import PAGE, Figure, decode_batch, ops_with, relative
from benchmarks.nano_prompts import Prompt, read_prompt
from kernels import Settings
from kernels.fp8_kv import block_of
from kernels.fp8_rows import pack
from reference import attention, experts, indexer, mhc
from reference.config import CSA, Config
from reference.formats import round_mxfp4, round_nvfp4
from reference.fp8_kv import round_kv_rows
from reference.model import Model
from reference.routing import route_selected, router_scores


def nano_figures(folder: Path, device: torch.device, lengths: Sequence[int]) -> list[Figure]:
    """All lines that this checkpoint gives."""
    model = Model(folder)
    prompts = [read_prompt(model, tokens) for tokens in lengths]
    c = model.config
    settings = Settings(
        index_topk=c.index_topk,
        index_head_dim=c.index_head_dim,
        head_dim=c.head_dim,
        rope_dim=c.qk_rope_head_dim,
        implementation="torch",
    )
    return [
        _mhc(prompts, device, settings),
        *_splitk(prompts, c, device, settings),
        *_index(prompts, c, device, settings),
        *_experts(prompts[0], c, device, settings),
    ]


def _lengths(prompts: Sequence[Prompt]) -> str:
    sizes = [len(prompt.ids) for prompt in prompts]
    return f"{sizes[0]} tokens" if len(sizes) == 1 else f"{sizes[0]}..{sizes[-1]} tokens"


def _mhc(prompts: Sequence[Prompt], device: torch.device, settings: Settings) -> Figure:
    op, errors = ops_with("mhc_bf16", device, settings).mhc_pre, []
    for prompt in prompts:
        for site in prompt.layers.sites():
            options = {k: v for k, v in site.arguments.items() if not isinstance(v, Tensor)}
            parts = {k: v for k, v in site.arguments.items() if k not in options}
            parts["streams"] = parts["streams"][prompt.rows]
            made = op(**{k: v.to(device) for k, v in parts.items()}, **options)
            truth = mhc.mhc_pre(**{k: v.double() for k, v in parts.items()}, **options)
            errors.append(max(relative(a.cpu(), b) for a, b in zip(made, truth, strict=True)))
    sites = len(errors) // len(prompts)
    return Figure(
        "mHC, nano's own weights and streams: worst relative error of y, post or comb of a site",
        "-",
        f"{max(errors):.1e}",
        f"{sites} sites, {_lengths(prompts)}",
    )


class Decoded(NamedTuple):
    """Attention of some tokens of one layer: the reference's arguments, and of which layer."""

    kind: str
    arguments: dict[str, Any]
    positions: Tensor


def _decoded(prompts: Sequence[Prompt], c: Config) -> Iterator[Decoded]:
    for prompt in prompts:
        at = prompt.rows
        for layer, kind in enumerate(c.layer_kinds):
            given = prompt.layers.attention(layer)
            chosen = given["selected"]
            given |= {"q": given["q"][at], "positions": at}
            given["selected"] = None if chosen is None else chosen[at]
            yield Decoded(kind, given, at)


def _true_attention(given: dict[str, Any]) -> Tensor:
    wide = {
        k: v.double() if isinstance(v, Tensor) and v.is_floating_point() else v
        for k, v in given.items()
    }
    return attention.sparse_attention(**wide)


def _pool(rows: Tensor, pages: int, m: int) -> Tensor:
    """[P, PAGE / m, D] with the rows one after the other; what is left over is zero."""
    pool = torch.zeros(pages * (PAGE // m), rows.shape[1], dtype=rows.dtype)
    pool[: len(rows)] = rows
    return pool.view(pages, PAGE // m, -1)


def _run_splitk(
    op: Any, one: Decoded, device: torch.device, dtype: torch.dtype, packed: Any = None
) -> Tensor:
    given, m = one.arguments, one.arguments["m"]
    batch = decode_batch(one.positions.tolist(), device, shared=True)
    pages = int(batch.page_table.max()) + 1
    pools = [_pool(given["kv"], pages, 1).to(device, dtype), None]
    if given["entries"] is not None:
        pools[1] = _pool(given["entries"], pages, m).to(device, dtype)
    if packed is not None:
        pools = [None if pool is None else packed(pool) for pool in pools]
    chosen = given["selected"]
    made = op(
        given["q"].to(device, dtype),
        *pools,
        None if chosen is None else chosen.int().to(device),
        given["sinks"].to(device),
        window=given["window"],
        m=m,
        scale=given["scale"],
        batch=batch,
    )
    return made.cpu()


def _splitk(
    prompts: Sequence[Prompt], c: Config, device: torch.device, settings: Settings
) -> list[Figure]:
    """Worst token of all layers: rows in fp32 as the pools hold them, in bf16, packed in fp8."""
    op = ops_with("splitk_decode", device, settings).sparse_attention
    block = block_of(c.head_dim, c.qk_rope_head_dim)
    named = {"rope_dim": c.qk_rope_head_dim, "block": block}
    errors: dict[str, list[float]] = {}
    for one in _decoded(prompts, c):
        truth = _true_attention(one.arguments)
        kept = dict(one.arguments)
        for part in ("kv", "entries"):
            kept[part] = None if kept[part] is None else round_kv_rows(kept[part], **named)
        stored = _true_attention(kept)
        packed = lambda pool: pack(pool, **named)  # noqa: E731
        for name, dtype, how, true in (
            ("rows in fp32", torch.float32, None, truth),
            ("rows and output in bf16", torch.bfloat16, None, truth),
            ("rows in fp8, against maths on these", torch.float32, packed, stored),
            ("rows in fp8, against unrounded maths", torch.float32, packed, truth),
        ):
            made = _run_splitk(op, one, device, dtype, how)
            worst = max(relative(a, b) for a, b in zip(made, true, strict=True))
            errors.setdefault(name, []).append(worst)
    counts = [f"{c.layer_kinds.count(k)} {k.split('_')[0]}" for k in dict.fromkeys(c.layer_kinds)]
    return [
        Figure(
            f"split-K decode, nano's own, {name}: worst relative error of a token",
            "-" if "fp8" in name else "<= 6.7e-3",
            f"{max(found):.1e}",
            f"layers: {', '.join(counts)}; {_lengths(prompts)}" if name == "rows in fp32" else "",
        )
        for name, found in errors.items()
    ]


def _index(
    prompts: Sequence[Prompt], c: Config, device: torch.device, settings: Settings
) -> list[Figure]:
    ops = ops_with("indexer_triton", device, settings)
    m, topk = c.rates[CSA], c.index_topk
    errors: list[float] = []
    jaccards: list[float] = []
    wanted = kept = 0
    indexed = [layer for layer, kind in enumerate(c.layer_kinds) if kind == CSA]
    for prompt in prompts:
        at = prompt.rows[prompt.rows >= (topk + 1) * m - 1]
        told = {token // m for token in prompt.told}
        batch = decode_batch(at.tolist(), device, shared=True)
        for layer in indexed:
            q, keys, weights = prompt.layers.index(layer).values()
            q, weights = q[at], weights[at]
            truth = indexer.index_scores(q.double(), keys.double(), weights.double())
            rounded = indexer.index_scores(
                q.bfloat16().double(), keys.bfloat16().double(), weights.double()
            )
            errors.append(float((rounded - truth).abs().max() / truth.abs().max()))
            best = indexer.select(truth, indexer.visible_entries(at, m), topk)
            storage = ops.index_keys.allocate(
                int(batch.page_table.max()) + 1, PAGE // m, q.shape[2], device
            )
            closed = keys[: (int(at[-1]) + 1) // m].to(device)
            slots = torch.arange(len(closed), dtype=torch.int32, device=device)
            last = torch.full_like(slots, len(at) - 1)
            ops.index_keys.store(storage, closed, last, slots, m, batch)
            made = ops.index_select(
                q.to(device), weights.to(device), storage, m=m, topk=topk, batch=batch
            ).cpu()
            for position, mine, true in zip(at.tolist(), made.tolist(), best.tolist(), strict=True):
                got, should = set(mine) - {-1}, set(true) - {-1}
                jaccards.append(len(got & should) / len(got | should))
                if position in prompt.asked:
                    wanted += len(told & should)
                    kept += len(told & should & got)
    errors.sort()
    averaging = (64 * 128 / (c.index_n_heads * c.index_head_dim)) ** 0.5
    right = sum(prompt.answered for prompt in prompts)
    mean = sum(jaccards) / len(jaccards)
    return [
        Figure(
            "index logits, nano's own, bf16 against fp32: largest difference over largest logit",
            "about 4e-4",
            f"{errors[len(errors) // 2]:.1e} (median), {errors[-1]:.1e} (worst)",
            f"{len(indexed)} layers, {_lengths(prompts)}; {c.index_n_heads} x {c.index_head_dim}"
            f" products average rounding {averaging:.1f} x less than 64 x 128",
        ),
        Figure(
            f"selected sets, nano's own, at its top-k {topk}: Jaccard",
            "0.98-1.0",
            f"{min(jaccards):.3f}-1.000, mean {mean:.4f}"
            if max(jaccards) == 1
            else f"{min(jaccards):.3f}-{max(jaccards):.3f}, mean {mean:.4f}",
            f"one entry of {topk} is {(topk - 1) / (topk + 1):.3f}",
        ),
        Figure(
            "entries of the planted fact that the answer's tokens select, nano's own: lost in bf16",
            "0",
            f"{wanted - kept} of {wanted}",
            f"the answer is right at {right} of {len(prompts)} lengths",
        ),
    ]


def _experts(prompt: Prompt, c: Config, device: torch.device, settings: Settings) -> list[Figure]:
    """Worst layer: the kernel against maths on the rounded weights, and on those trained."""
    weight = prompt.layers.model.weight
    found = []
    at = prompt.rows
    inputs = [(layer, x[at]) for layer, x in prompt.layers.expert_inputs()]
    for name, form in (("mxfp4", round_mxfp4), ("nvfp4", round_nvfp4)):
        op = ops_with(f"{name}_experts", device, settings).experts
        own, choice = [], []
        for layer, x in inputs:
            prefix = f"model.layers.{layer}.mlp"
            gate_up, down = (
                weight(f"{prefix}.experts.{part}_proj") for part in ("gate_up", "down")
            )
            ids = prompt.layers.rows[f"L{layer}.moe_topk"][at]
            scores = router_scores(x, weight(f"{prefix}.gate.weight"))
            routed = route_selected(scores, ids, c.routed_scaling_factor)
            x = x.bfloat16().float()  # noqa: PLW2901
            made = op(
                *(t.to(device) for t in (x, ids.int(), routed, gate_up, down)), limit=c.swiglu_limit
            ).cpu()
            rounded = [torch.stack([form(one) for one in part]) for part in (gate_up, down)]
            for kept, parts in ((own, rounded), (choice, [gate_up, down])):
                wide = [part.double() for part in (routed, *parts)]
                truth = experts.routed_experts(x.double(), ids, *wide, limit=c.swiglu_limit)
                kept.append(relative(made, truth))
        for against, errors in (("maths on these", own), ("unrounded maths", choice)):
            found.append(
                Figure(
                    f"experts in {name}, nano's own, against {against}: worst relative error of a"
                    " layer",
                    "-",
                    f"{max(errors):.1e}",
                    f"{len(inputs)} layers, inputs in bf16" if against == "maths on these" else "",
                )
            )
    return found
