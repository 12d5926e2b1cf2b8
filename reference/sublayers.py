"""The two sublayers of a block on all tokens of one sequence: attention and experts."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from reference.attention import grouped_output, sparse_attention
from reference.compressor import csa_entries, hca_entries
from reference.config import CSA, SLIDING, Config
from reference.experts import expert, routed_experts
from reference.indexer import index_scores, select, visible_entries
from reference.rmsnorm import rms_norm
from reference.rope import frequencies, rotate
from reference.routing import (
    Routed,
    route_hashed,
    route_learned,
    route_selected,
    router_scores,
)

Record = Callable[[str, Tensor], None]


class Weights(Protocol):
    """What a sublayer asks of the model."""

    config: Config

    def weight(self, name: str) -> Tensor:
        """Return a tensor by its name in the checkpoint."""


class Sublayers:
    """Attention and experts of every layer, in one forward pass.

    Args:
        model: weights and shape.
        token_ids: int64 [T], of positions 0 .. T - 1.
        record: called with the name and rows of each activation.
        forced: selections to use in place of the model's own.
    """

    def __init__(
        self, model: Weights, token_ids: Tensor, record: Record, forced: Mapping[str, Tensor]
    ) -> None:
        self.model, self.config, self.weight = model, model.config, model.weight
        self.token_ids, self.record, self.forced = token_ids, record, forced
        self.positions = torch.arange(token_ids.numel())

    def attention(self, layer: int, x: Tensor) -> Tensor:
        """Attention of one layer on its normed input [T, H]."""
        c, prefix = self.config, f"model.layers.{layer}.self_attn"
        self.record(f"L{layer}.attn_in", x)
        o = sparse_attention(**self.attention_inputs(layer, x))
        o = self._rotate(o, c.layer_kinds[layer], inverse=True)
        w_a, w_b = (self.weight(f"{prefix}.o_{part}_proj.weight") for part in "ab")
        out = grouped_output(o, w_a, w_b, groups=c.o_groups)
        self.record(f"L{layer}.attn_out", out)
        return out

    def attention_inputs(self, layer: int, x: Tensor) -> dict[str, Any]:
        """Arguments of `sparse_attention`, by name, for the normed input [T, H] of a layer."""
        c, prefix = self.config, f"model.layers.{layer}.self_attn"
        kind = c.layer_kinds[layer]
        latent = self._latent(layer, x)
        q = self._project(latent, f"{prefix}.q_b_proj").view(len(x), -1, c.head_dim)
        kv = self._norm(self._project(x, f"{prefix}.kv_proj"), f"{prefix}.kv_norm")
        entries, selected = self._compressed(layer, x, latent)
        return {
            "q": self._rotate(rms_norm(q, None, c.rms_norm_eps), kind),
            "kv": self._rotate(kv, kind),
            "entries": entries,
            "selected": selected,
            "sinks": self.weight(f"{prefix}.sinks"),
            "positions": self.positions,
            "window": c.sliding_window,
            "m": c.rates[kind] or None,
            "scale": c.head_dim**-0.5,
        }

    def index_inputs(self, layer: int, x: Tensor) -> dict[str, Tensor]:
        """Arguments of `index_scores`, by name, for the normed input [T, H] of a CSA layer."""
        return self._index_inputs(layer, x, self._latent(layer, x))

    def feed_forward(self, layer: int, x: Tensor) -> Tensor:
        """Routed experts plus the shared one on the normed input [T, H]."""
        prefix, limit = f"model.layers.{layer}.mlp", self.config.swiglu_limit
        ids, weights = self._route(layer, x)
        self.record(f"L{layer}.moe_topk", ids.int())
        stacked = [self.weight(f"{prefix}.experts.{part}_proj") for part in ("gate_up", "down")]
        single = [
            self.weight(f"{prefix}.shared_experts.{part}_proj.weight")
            for part in ("gate", "up", "down")
        ]
        routed = routed_experts(x, ids, weights, *stacked, limit=limit)
        out = routed + expert(x, *single, limit=limit)
        self.record(f"L{layer}.ffn_out", out)
        return out

    def _latent(self, layer: int, x: Tensor) -> Tensor:
        """What queries of attention and of the indexer are projected from, [T, R]."""
        prefix = f"model.layers.{layer}.self_attn"
        return self._norm(self._project(x, f"{prefix}.q_a_proj"), f"{prefix}.q_a_norm")

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return rms_norm(x, self.weight(f"{name}.weight"), self.config.rms_norm_eps)

    def _project(self, x: Tensor, name: str) -> Tensor:
        return x @ self.weight(f"{name}.weight").T

    def _freqs(self, kind: str) -> Tensor:
        c = self.config
        if kind == SLIDING:
            return frequencies(c.rope_theta, c.qk_rope_head_dim)
        return frequencies(c.compress_rope_theta, c.qk_rope_head_dim, c.yarn)

    def _rotate(self, x: Tensor, kind: str, *, inverse: bool = False) -> Tensor:
        return rotate(x, self.positions, self._freqs(kind), inverse=inverse)

    def _compressed(
        self, layer: int, x: Tensor, latent: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Entries of the layer, and which of them each token reads; None for all visible."""
        kind = self.config.layer_kinds[layer]
        if kind == SLIDING:
            return None, None
        entries = self._entries(x, f"model.layers.{layer}.self_attn.compressor", kind)
        return entries, self._index(layer, x, latent) if kind == CSA else None

    def _entries(self, x: Tensor, name: str, kind: str) -> Tensor:
        compress = csa_entries if kind == CSA else hca_entries
        return compress(
            self._project(x, f"{name}.kv_proj"),
            self._project(x, f"{name}.gate_proj"),
            self.weight(f"{name}.position_bias"),
            self.weight(f"{name}.kv_norm.weight"),
            eps=self.config.rms_norm_eps,
            freqs=self._freqs(kind),
        )

    def _index(self, layer: int, x: Tensor, latent: Tensor) -> Tensor:
        """Entries that each token reads, int [T, index_topk]."""
        c = self.config
        visible = visible_entries(self.positions, c.rates[CSA])
        selected = self.forced.get(f"L{layer}.index_topk")
        if selected is None:
            scores = index_scores(**self._index_inputs(layer, x, latent))
            selected = select(scores, visible, c.index_topk)
        self.record(f"L{layer}.index_topk", selected.int())
        return selected

    def _index_inputs(self, layer: int, x: Tensor, latent: Tensor) -> dict[str, Tensor]:
        c, name = self.config, f"model.layers.{layer}.self_attn.compressor.indexer"
        q = self._project(latent, f"{name}.q_b_proj").view(len(x), -1, c.index_head_dim)
        weights = self._project(x, f"{name}.scorer.weights_proj")
        return {
            "q": self._rotate(q, CSA),
            "keys": self._entries(x, name, CSA),
            "weights": weights * c.index_head_dim**-0.5 * c.index_n_heads**-0.5,
        }

    def _route(self, layer: int, x: Tensor) -> Routed:
        c, name = self.config, f"model.layers.{layer}.mlp.gate"
        gate, scaling = self.weight(f"{name}.weight"), c.routed_scaling_factor
        forced = self.forced.get(f"L{layer}.moe_topk")
        if forced is not None:
            weights = route_selected(router_scores(x, gate), forced, scaling)
            return Routed(forced.long(), weights)
        if c.hash_layers[layer]:
            table = self.weight(f"{name}.tid2eid")
            return route_hashed(x, gate, self.token_ids, table, scaling=scaling)
        bias = self.weight(f"{name}.e_score_correction_bias")
        return route_learned(x, gate, bias, topk=c.num_experts_per_tok, scaling=scaling)
