"""The trainer's forward: the model of `transformers`, by the same names, fast on whole rows.

Experts run dense (eight small ones cost less than sorting tokens by expert), the window is blocked,
stream mixing is fused. `tests/engine/nano/test_parity.py` holds it against `transformers`.
"""
# mypy: disable-error-code="no-untyped-call"
# torch leaves Function.apply, unflatten, backward and Stream without types

import torch
from torch import Tensor
from torch.nn import functional

from engine.nano.attention import Positions, Site, attention
from engine.nano.gating import Gated, gated_torch
from engine.nano.layers import rms_norm
from engine.nano.mode import Aux, Mode, no_loss
from engine.nano.norm_rotate import NormRotate, Shape
from engine.nano.projection import Project, project_torch
from engine.nano.sinkhorn import Sinkhorn, sinkhorn_torch
from engine.nano.streams import Collapse, Expand, collapse_torch, expand_torch
from engine.nano.weights import Weights

_KEPT_LENGTHS = 24


class Twin:
    """Computes hidden states and logits of whole rows from `Weights`.

    fused: run the Triton kernels (bf16 on CUDA, four streams); else plain torch.
    """

    def __init__(self, weights: Weights, *, fused: bool = False) -> None:
        self.weights = weights
        self.fused = fused
        self._positions: dict[tuple[int, str | None], Positions] = {}

    def hidden(self, ids: Tensor, mode: Mode) -> tuple[Tensor, Aux]:
        """Token ids [B, T] -> normed hidden states [B, T, H] and what the mode asked for."""
        weights, config = self.weights, self.weights.config
        batch, length = ids.shape
        aux = no_loss(ids.device)
        positions = self._at(length, mode.fault)
        embedded = functional.embedding(ids, weights.cast("model.embed_tokens.weight"))
        x = embedded.view(batch * length, 1, -1).expand(-1, config.streams, -1).contiguous()
        for layer in range(len(config.layers)):
            prefix = f"model.layers.{layer}."
            y, post, mix = self._read(x, prefix + "attn_hc.", prefix + "input_layernorm", mode)
            rows = y.view(batch, length, -1)
            f = attention(rows, Site(layer, weights, positions, mode, self.fused), aux)
            x = self._write(f.reshape(batch * length, -1), x, post, mix)
            y, post, mix = self._read(
                x, prefix + "ffn_hc.", prefix + "post_attention_layernorm", mode
            )
            x = self._write(self._mixture(y, layer, ids, mode), x, post, mix)
        return self._head(x, mode).view(batch, length, -1), aux

    def logits(self, hidden: Tensor) -> Tensor:
        """[..., H] -> [..., V]."""
        return functional.linear(hidden, self.weights.cast("lm_head.weight"))

    def _at(self, length: int, fault: str | None) -> Positions:
        key = (length, fault)
        if key not in self._positions:
            if len(self._positions) >= _KEPT_LENGTHS:
                del self._positions[next(iter(self._positions))]
            self._positions[key] = Positions(self.weights.config, length, self.weights, fault)
        return self._positions[key]

    def _epsilons(self, mode: Mode) -> tuple[float, float]:
        pair = (self.weights.rms_eps, self.weights.hc_eps)
        return pair[::-1] if mode.fault == "swapped epsilons" else pair

    def _project(self, x: Tensor, fn: Tensor, rms_eps: float, mode: Mode) -> Tensor:
        """The mixing projection: fp32 [N, rows] of streams [N, n, H], normed over all of them."""
        flat = x.flatten(1)
        if mode.bf16_mixing:
            wide = flat.float()
            size = torch.rsqrt(wide.square().mean(-1, keepdim=True) + rms_eps)
            return functional.linear((wide * size).bfloat16(), fn.bfloat16()).float()
        if self.fused:
            raw: Tensor = Project.apply(flat, fn, rms_eps)
            return raw
        return project_torch(flat, fn, rms_eps)

    def _norm(self, x: Tensor, name: str, eps: float) -> Tensor:
        weight = self.weights.full(name)
        if self.fused:
            out: Tensor = NormRotate.apply(x, weight, None, None, Shape(eps=eps))
            return out
        return rms_norm(x, weight, eps)

    def _read(self, x: Tensor, site: str, norm: str, mode: Mode) -> tuple[Tensor, Tensor, Tensor]:
        """Streams -> the sublayer's normed input, and the weights with which its output returns."""
        weights = self.weights
        n = weights.config.streams
        rms_eps, hc_eps = self._epsilons(mode)
        base, scale = weights.full(site + "base"), weights.full(site + "scale")
        raw = self._project(x, weights.full(site + "fn"), rms_eps, mode)
        pre = torch.sigmoid(raw[:, :n] * scale[0] + base[:n]) + hc_eps
        post = 2 * torch.sigmoid(raw[:, n : 2 * n] * scale[1] + base[n : 2 * n])
        logits = (raw[:, 2 * n :] * scale[2] + base[2 * n :]).view(-1, n, n)
        mix = self._mixer(logits, hc_eps, mode)
        y = Collapse.apply(x, pre) if self.fused else collapse_torch(x, pre)
        return self._norm(y, norm + ".weight", rms_eps), post, mix

    def _mixer(self, logits: Tensor, hc_eps: float, mode: Mode) -> Tensor:
        iterations = self.weights.config.sinkhorn_iterations
        if mode.fault in ("sinkhorn 1", "sinkhorn 3"):
            return sinkhorn_torch(logits, int(mode.fault[-1]), hc_eps)
        mix: Tensor = Sinkhorn.apply(logits, iterations, hc_eps, self.fused)
        return mix.transpose(1, 2).contiguous() if mode.fault == "mixing transposed" else mix

    def _write(self, f: Tensor, x: Tensor, post: Tensor, mix: Tensor) -> Tensor:
        if self.fused:
            out: Tensor = Expand.apply(f, x, post, mix)
            return out
        return expand_torch(f, x, post, mix)

    def _head(self, x: Tensor, mode: Mode) -> Tensor:
        weights = self.weights
        rms_eps, hc_eps = self._epsilons(mode)
        raw = self._project(x, weights.full("model.hc_head.hc_fn"), rms_eps, Mode())
        scale, base = weights.full("model.hc_head.hc_scale"), weights.full("model.hc_head.hc_base")
        pre = torch.sigmoid(raw * scale + base) + hc_eps
        y = Collapse.apply(x, pre) if self.fused else collapse_torch(x, pre)
        return self._norm(y, "model.norm.weight", rms_eps)

    def _mixture(self, x: Tensor, layer: int, ids: Tensor, mode: Mode) -> Tensor:
        """Routed experts, all computed and weighted, plus the shared expert; x [N, H]."""
        weights, prefix = self.weights, f"model.layers.{layer}.mlp."
        count, hidden = x.shape
        share = self._route(x, layer, ids, mode)
        up = weights.cast(prefix + "experts.gate_up_proj")
        inner = functional.linear(x, up.flatten(0, 1)).view(count, up.shape[0], -1)
        gated = Gated.apply if self.fused else gated_torch
        limit = weights.config.swiglu_limit
        inner = gated(inner, share, limit).reshape(count, -1)
        down = weights.cast(prefix + "experts.down_proj").permute(1, 0, 2).reshape(hidden, -1)
        both = [weights.cast(f"{prefix}shared_experts.{n}_proj.weight") for n in ("gate", "up")]
        shared = functional.linear(x, torch.cat(both)).view(count, 1, -1)
        ones = torch.ones(count, 1, device=x.device)
        shared = gated(shared, ones, limit).reshape(count, -1)
        out = functional.linear(shared, weights.cast(prefix + "shared_experts.down_proj.weight"))
        return functional.linear(inner, down) + out

    def _route(self, x: Tensor, layer: int, ids: Tensor, mode: Mode) -> Tensor:
        """fp32 [N, E]: each token's weight of each expert, zero where it is not routed."""
        weights, config = self.weights, self.weights.config
        prefix = f"model.layers.{layer}.mlp.gate."
        score = functional.softplus(
            functional.linear(x, weights.cast(prefix + "weight")).float()
        ).sqrt()
        if layer < config.hash_layers:
            chosen = weights.full(prefix + "tid2eid")[ids.reshape(-1)]
            if mode.fault == "wrong hash table":
                chosen = (chosen + 1) % config.experts
        else:
            bias = weights.full(prefix + "e_score_correction_bias")
            biased = score if mode.fault == "no correction bias" else score + bias
            chosen = biased.topk(config.experts_per_token, -1).indices
        share = score.gather(1, chosen)
        share = share / (share.sum(-1, keepdim=True) + 1e-20) * config.routed_scaling
        routed = torch.zeros_like(score).scatter(1, chosen, share)
        if mode.balance is not None and layer >= config.hash_layers:
            with torch.no_grad():
                load = (routed > 0).float().mean(0)
                bias += mode.balance * torch.sign(load.mean() - load)
        return routed
