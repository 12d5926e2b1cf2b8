"""Calls of each operation as a running engine made them, out of dumps; its weights go with them.

Of each layer of each dump the tokens of `spread`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch import Tensor

from fidelity.tensors import Case
from reference.config import Config
from reference.routing import route_selected, router_scores
from suites.patches.dumped_layers import DumpedLayers
from suites.patches.harvest import Harvest, spread
from suites.patches.synthetic import bf16


def mixing_cases(harvest: Harvest) -> list[Case]:
    """Arguments of `mhc_pre` at every site; the streams as bf16 values."""
    return [
        Case(
            f"{_stem(dump)} {site.where}",
            {**site.arguments, "streams": bf16(streams[spread(0, len(streams))])},
        )
        for dump in harvest.layers()
        for site in dump.sites()
        for streams in [site.arguments["streams"]]
    ]


def decode_cases(harvest: Harvest, *, compressed: bool) -> list[Case]:
    """Arguments of decode attention, each token as a sequence with the same rows.

    Args:
        harvest: the dumps.
        compressed: layers that have entries, or those that have none.
    """
    return [
        Case(where, given)
        for where, given in _decoded(harvest)
        if (given["entries"] is not None) is compressed
    ]


def _decoded(harvest: Harvest) -> Iterator[tuple[str, dict[str, Any]]]:
    for dump in harvest.layers():
        for layer in range(len(harvest.checkpoint.config.layer_kinds)):
            given = dump.attention(layer)
            at = spread(0, len(given["q"]))
            if given["entries"] is not None and not len(given["entries"]):
                given |= {"entries": None, "selected": None, "m": None}  # no window has closed
            for name in ("kv", "entries"):
                if given[name] is not None:
                    given[name] = given[name].expand(len(at), -1, -1)
            given |= {"q": given["q"][at], "positions": at}
            if given["selected"] is not None:
                given["selected"] = given["selected"][at].int()
            yield f"{_stem(dump)} layer {layer}", given


def row_cases(harvest: Harvest) -> list[Case]:
    """Window rows and compressed entries of every layer, as they are stored."""
    cases = []
    for dump in harvest.layers():
        for layer in range(len(harvest.checkpoint.config.layer_kinds)):
            given = dump.attention(layer)
            for name in ("kv", "entries"):
                rows = given[name]
                if rows is not None and len(rows):
                    where = f"{_stem(dump)} layer {layer}, {name}"
                    cases.append(Case(where, {"kv": rows[spread(0, len(rows))]}))
    return cases


def routing_cases(harvest: Harvest, *, hashed: bool) -> list[Case]:
    """Arguments of learned or of hash routing."""
    c, cases = harvest.checkpoint.config, []
    for dump in harvest.layers():
        for layer, x in dump.expert_inputs():
            if c.hash_layers[layer] is not hashed:
                continue
            at = spread(0, len(x))
            prefix = f"model.layers.{layer}.mlp.gate"
            given = {"x": x[at], "gate": dump.model.weight(f"{prefix}.weight")}
            given["scaling"] = c.routed_scaling_factor  # type: ignore[assignment]
            if hashed:
                given["token_ids"] = dump.tokens()[at]
                given["tid2eid"] = dump.model.weight(f"{prefix}.tid2eid")
            else:
                given["bias"] = dump.model.weight(f"{prefix}.e_score_correction_bias")
                given["topk"] = c.num_experts_per_tok  # type: ignore[assignment]
            cases.append(Case(f"{_stem(dump)} layer {layer}", given))
    return cases


def expert_cases(harvest: Harvest) -> list[Case]:
    """Arguments of the routed experts; each token goes where the dump says."""
    return [
        Case(
            f"{_stem(dump)} layer {layer}",
            {
                "x": x[at],
                **_routed(dump, layer, x, at, harvest.checkpoint.config),
                **{
                    part: dump.model.weight(f"model.layers.{layer}.mlp.experts.{part}_proj")
                    for part in ("gate_up", "down")
                },
                "limit": harvest.checkpoint.config.swiglu_limit,
            },
        )
        for dump in harvest.layers()
        for layer, x in dump.expert_inputs()
        for at in [spread(0, len(x))]
    ]


def shared_expert_cases(harvest: Harvest) -> list[Case]:
    """Arguments of the shared expert."""
    return [
        Case(
            f"{_stem(dump)} layer {layer}",
            {
                "x": x[spread(0, len(x))],
                **{
                    f"w_{part}": dump.model.weight(
                        f"model.layers.{layer}.mlp.shared_experts.{part}_proj.weight"
                    )
                    for part in ("gate", "up", "down")
                },
                "limit": harvest.checkpoint.config.swiglu_limit,
            },
        )
        for dump in harvest.layers()
        for layer, x in dump.expert_inputs()
    ]


def _routed(dump: DumpedLayers, layer: int, x: Tensor, at: Tensor, c: Config) -> dict[str, Tensor]:
    ids = dump.routed_to(layer)[at]
    scores = router_scores(x[at], dump.model.weight(f"model.layers.{layer}.mlp.gate.weight"))
    return {"ids": ids.int(), "weights": route_selected(scores, ids, c.routed_scaling_factor)}


def clamped_frac(case: Case) -> float:
    """Share of a call's gate and up activations that the limit cuts."""
    given = case.arguments
    limit, cut, count = given["limit"], 0, 0
    if not limit or limit <= 0:
        return 0.0
    for e in range(len(given["gate_up"])):
        rows = (given["ids"] == e).any(1)
        gate, up = (given["x"][rows] @ given["gate_up"][e].T).chunk(2, dim=1)
        cut += int((gate > limit).sum() + (up.abs() > limit).sum())
        count += gate.numel() + up.numel()
    return cut / max(1, count)


def _stem(dump: DumpedLayers) -> str:
    return Path(dump.name).stem
