"""The DeepSeek-V4 forward pass over a ragged batch.

Per block: hyper-connections collapse the residual streams into one input, attention or experts work
on it, and their output is spread over the streams again. All arithmetic that a patch may change is
an op of `engine.ops`, looked up at each call; all state lies in `engine.pools`.

Shapes: T tokens, H hidden, n streams, D head dim, Hq heads.
"""

from typing import TYPE_CHECKING

from torch import Tensor

from engine.architecture import SLIDING, Architecture
from engine.weights import CompressorWeights, IndexerWeights, Weights
from kernels.batch import PagedBatch

if TYPE_CHECKING:
    from engine.core import Engine
    from engine.rotary import RotaryTable


class Rotation:
    """Rotary rows of one batch, gathered once: cos and sin [T, R/2], and the tables behind."""

    __slots__ = ("cos", "sin", "table")

    def __init__(self, table: "RotaryTable", positions: Tensor) -> None:
        self.table = table
        self.cos = table.cos[positions]
        self.sin = table.sin[positions]


class Model:
    """Weights and the order of operations. Stateless between calls; one call at a time."""

    def __init__(
        self,
        engine: "Engine",
        architecture: Architecture,
        weights: Weights,
        rotary: "tuple[RotaryTable, RotaryTable]",
    ) -> None:
        """Take the parts; `rotary` is the table of plain layers, then of compressing ones."""
        self.engine = engine
        self.architecture = architecture
        self.weights = weights
        self.rotary = rotary

    def forward(self, batch: PagedBatch) -> Tensor:
        """Compute all tokens of a batch and write their state into the pools; return [T, H].

        The result is before the last norm: `logits` takes it.
        """
        plain, compressing = (Rotation(table, batch.positions) for table in self.rotary)
        streams = self.embed(batch)
        for layer, kind in enumerate(self.architecture.layer_kinds):
            rotation = plain if kind == SLIDING else compressing
            streams = self.block(layer, streams, rotation, batch)
        a, head = self.architecture, self.weights.head_hc
        hidden: Tensor = self.engine.ops.mhc_head(
            streams, head.fn, head.base, head.scale, rms_eps=a.rms_norm_eps, hc_eps=a.hc_eps
        )
        return hidden

    def embed(self, batch: PagedBatch) -> Tensor:
        """Return the residual streams [T, n, H]: n copies of each token's embedding."""
        rows = self.weights.embed[batch.token_ids]
        self.record("embed", rows)
        return rows[:, None].expand(-1, self.architecture.hc_mult, -1).contiguous()

    def logits(self, hidden: Tensor) -> Tensor:
        """Return fp32 [N, V] for rows of `forward`'s result."""
        ops, weights = self.engine.ops, self.weights
        normed = ops.rms_norm(hidden, weights.norm, self.architecture.rms_norm_eps)
        logits: Tensor = ops.linear(normed, weights.lm_head).float()
        return logits

    def block(self, layer: int, streams: Tensor, rotation: Rotation, batch: PagedBatch) -> Tensor:
        """One layer on the residual streams [T, n, H]."""
        a, ops, weights = self.architecture, self.engine.ops, self.weights.layers[layer]
        for hyper, norm, sublayer in (
            (weights.attn_hc, weights.attn_norm, self.attention),
            (weights.ffn_hc, weights.ffn_norm, self.feed_forward),
        ):
            x, post, comb = ops.mhc_pre(
                streams,
                hyper.fn,
                hyper.base,
                hyper.scale,
                rms_eps=a.rms_norm_eps,
                hc_eps=a.hc_eps,
                iters=a.hc_sinkhorn_iters,
            )
            x = ops.rms_norm(x, norm, a.rms_norm_eps)
            streams = ops.mhc_post(sublayer(layer, x, rotation, batch), streams, post, comb)
        return streams

    def attention(self, layer: int, x: Tensor, rotation: Rotation, batch: PagedBatch) -> Tensor:
        """Attention of one layer on its normed input [T, H]; writes the layer's pools."""
        a, ops, w = self.architecture, self.engine.ops, self.weights.layers[layer].attention
        self.record(f"L{layer}.attn_in", x)
        pools = self.engine.pools.layers[layer]
        latent = ops.rms_norm(ops.linear(x, w.q_a), w.q_norm, a.rms_norm_eps)
        q = ops.linear(latent, w.q_b).view(-1, a.num_heads, a.head_dim)
        q = self.norm_rope(q, None, rotation)
        kv = self.norm_rope(ops.linear(x, w.kv)[:, None], w.kv_norm, rotation)
        ops.store_window(pools.window, kv[:, 0], batch)
        selected = self.compressed(layer, x, latent, rotation, batch)
        o = ops.sparse_attention(
            q,
            pools.window,
            pools.entries,
            selected,
            w.sinks,
            window=a.sliding_window,
            m=a.rate(layer) or None,
            scale=a.head_dim**-0.5,
            batch=batch,
        )
        o = ops.rope(o, rotation.cos, rotation.sin, rope_dim=a.rope_dim, inverse=True)
        out: Tensor = ops.grouped_output(o.flatten(1), w.o_a, w.o_b, groups=a.o_groups)
        self.record(f"L{layer}.attn_out", out)
        return out

    def norm_rope(self, x: Tensor, weight: Tensor | None, rotation: Rotation) -> Tensor:
        """RMS-normalise each head of [T, N, D], then rotate its tail."""
        a, ops = self.architecture, self.engine.ops
        return ops.norm_rope(  # type: ignore[no-any-return]
            x, weight, rotation.cos, rotation.sin, eps=a.rms_norm_eps, rope_dim=a.rope_dim
        )

    def compressed(
        self, layer: int, x: Tensor, latent: Tensor, rotation: Rotation, batch: PagedBatch
    ) -> Tensor | None:
        """Close the windows that this batch fills, and choose what each token may read.

        Returns: int32 [T, topk] entry indices in a CSA layer; None otherwise, which means all
        visible entries, if the layer has any.
        """
        w = self.weights.layers[layer].attention
        if w.compressor is None:
            return None
        ops, pools = self.engine.ops, self.engine.pools.layers[layer]
        rate = self.architecture.rate(layer)
        entries = self.compress(w.compressor, x, pools.ring, rate, rotation=rotation, batch=batch)
        ops.store_entries(pools.entries, *entries, rate, batch)
        if w.indexer is None:
            return None
        selected = self.index(layer, w.indexer, x, latent, rotation=rotation, batch=batch)
        self.record(f"L{layer}.index_topk", selected)
        return selected

    def compress(
        self,
        w: CompressorWeights,
        x: Tensor,
        ring: Tensor | None,
        rate: int,
        *,
        rotation: Rotation,
        batch: PagedBatch,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the windows closed now: entries [N, D], their sequence [N], their index [N]."""
        a, ops = self.architecture, self.engine.ops
        return ops.compress(  # type: ignore[no-any-return]
            ops.linear(x, w.kv),
            ops.linear(x, w.gate),
            ring,
            w.ape,
            w.norm,
            eps=a.rms_norm_eps,
            m=rate,
            overlap=w.kv.shape[0] == 2 * w.norm.shape[0],
            rope_dim=a.rope_dim,
            cos_sin=rotation.table,
            batch=batch,
        )

    def index(
        self,
        layer: int,
        w: IndexerWeights,
        x: Tensor,
        latent: Tensor,
        *,
        rotation: Rotation,
        batch: PagedBatch,
    ) -> Tensor:
        """Store the new index keys and select entries for each token: int32 [T, topk]."""
        a, ops, pools = self.architecture, self.engine.ops, self.engine.pools.layers[layer]
        keys, sequences, indices = self.compress(
            w.compressor, x, pools.index_ring, a.csa_rate, rotation=rotation, batch=batch
        )
        ops.index_keys.store(pools.index_keys, keys, sequences, indices, a.csa_rate, batch)
        q = ops.linear(latent, w.q_b).view(-1, a.index_n_heads, a.index_head_dim)
        q = ops.rope(q, rotation.cos, rotation.sin, rope_dim=a.rope_dim)
        weights = ops.linear(x, w.head_weights) * (a.index_head_dim * a.index_n_heads) ** -0.5
        return ops.index_select(  # type: ignore[no-any-return]
            q, weights, pools.index_keys, m=a.csa_rate, topk=ops.index_topk, batch=batch
        )

    def feed_forward(self, layer: int, x: Tensor, rotation: Rotation, batch: PagedBatch) -> Tensor:
        """Routed experts plus the shared one on the normed input [T, H]."""
        del rotation  # the two sublayers of a block are called alike
        a, ops, w = self.architecture, self.engine.ops, self.weights.layers[layer].moe
        ids, weights = self.route(layer, x, batch)
        self.record(f"L{layer}.moe_topk", ids)
        routed = ops.experts(x, ids, weights, w.gate_up, w.down, limit=a.swiglu_limit)
        shared = ops.shared_expert(
            x, w.shared_gate, w.shared_up, w.shared_down, limit=a.swiglu_limit
        )
        out: Tensor = routed + shared
        self.record(f"L{layer}.ffn_out", out)
        return out

    def route(self, layer: int, x: Tensor, batch: PagedBatch) -> tuple[Tensor, Tensor]:
        """Return expert ids int32 [T, K] and their weights [T, K]."""
        a, w = self.architecture, self.weights.layers[layer].moe
        return self.engine.ops.route(  # type: ignore[no-any-return]
            x,
            w.gate,
            w.bias,
            w.tid2eid,
            topk=a.num_experts_per_tok,
            scaling=a.routed_scaling_factor,
            batch=batch,
        )

    def record(self, name: str, tensor: Tensor) -> None:
        """Keep an activation when `--dump-activations` is on."""
        if self.engine.dumps is not None:
            self.engine.dumps.record(name, tensor)
