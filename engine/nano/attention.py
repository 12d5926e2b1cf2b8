"""Attention of one layer over whole rows: sliding window, compressed entries, sink, indexer."""

import torch
import torch.nn.functional as F
from torch import Tensor

from engine.nano.config import NanoConfig
from engine.nano.layers import pool_windows, rms_norm, rotate, unit_norm
from engine.nano.mode import Aux, Mode
from engine.nano.rounding import round_keys
from engine.nano.weights import Weights

# A finite "never": rows of -inf alone would give NaN gradients in the indexer's loss.
_HIDDEN = -1e4


class Positions:
    """Cosines, sines and masks for rows of one length."""

    def __init__(self, config: NanoConfig, length: int, weights: Weights, fault: str | None):
        self.length = length
        self.device = weights.device
        self._config = config
        at = torch.arange(length, device=self.device)
        self.turns = {
            False: self.angles(at, compressed=False, fault=fault),
            True: self.angles(at, compressed=True, fault=fault),
        }
        self._masks: dict[tuple[str, torch.dtype, str | None], Tensor] = {}

    def angles(self, at: Tensor, *, compressed: bool, fault: str | None) -> tuple[Tensor, Tensor]:
        """Cosine and sine [len(at), rope_dim/2] of a kind of layer; fp32."""
        config = self._config
        frequencies = config.frequencies(compressed=compressed)
        if compressed and fault == "main rotation everywhere":
            frequencies = config.frequencies(compressed=False)
        if compressed and fault == "no YaRN":
            half = config.rope_dim // 2
            frequencies = [config.compress_theta ** (-i / half) for i in range(half)]
        angle = at.float()[:, None] * torch.tensor(frequencies, device=self.device)
        return angle.cos(), angle.sin()

    def mask(self, kind: str, dtype: torch.dtype, fault: str | None) -> Tensor:
        """Additive [T, 2W + entries + 1]: window columns, entry columns, the sink column."""
        key = (kind, dtype, fault)
        if key not in self._masks:
            self._masks[key] = self._build_mask(kind, dtype, fault)
        return self._masks[key]

    def _build_mask(self, kind: str, dtype: torch.dtype, fault: str | None) -> Tensor:
        window = self._config.window
        rate = {"S": 0, "C": self._config.csa_rate, "H": self._config.hca_rate}[kind]
        t = torch.arange(self.length, device=self.device)
        column = torch.arange(2 * window, device=self.device)
        back = (t % window)[:, None] - (column[None, :] - window)
        parts = [(back >= 0) & (back < window) & ((t[:, None] - back) >= 0)]
        if rate:
            late = int(fault == f"{kind}CA one entry late".replace("CCA", "CSA"))
            entry = torch.arange(self.length // rate, device=self.device)
            parts.append(entry[None, :] < ((t + 1) // rate - late)[:, None])
        parts.append(torch.ones(self.length, 1, dtype=torch.bool, device=self.device))
        shown = torch.cat(parts, 1)
        mask = torch.zeros(shown.shape, device=self.device, dtype=dtype)
        return mask.masked_fill(~shown, float("-inf"))


def attention(  # noqa: PLR0915 - one forward, read from top to bottom
    x: Tensor, layer: int, weights: Weights, positions: Positions, mode: Mode, aux: Aux
) -> Tensor:
    """Normed x [B, T, H] -> [B, T, H]. T is a multiple of the window and of every rate."""
    config, prefix = weights.config, f"model.layers.{layer}.self_attn."
    batch, length, _ = x.shape
    heads, dim, window = config.heads, config.head_dim, config.window
    kind, rate = config.layers[layer], config.rate(layer)
    cos, sin = positions.turns[kind != "S"]
    eps = weights.rms_eps

    latent = F.linear(x, weights.half(prefix + "q_a_proj.weight"))
    latent = rms_norm(latent, weights.full(prefix + "q_a_norm.weight"), eps)
    q = F.linear(latent, weights.half(prefix + "q_b_proj.weight")).view(batch, length, heads, dim)
    q = rotate(unit_norm(q, eps, dim**-0.5), cos.unsqueeze(1), sin.unsqueeze(1))
    q = q.transpose(1, 2).contiguous()
    kv = F.linear(x, weights.half(prefix + "kv_proj.weight"))
    kv = rotate(rms_norm(kv, weights.full(prefix + "kv_norm.weight"), eps), cos, sin)

    blocks = length // window
    kv = kv.view(batch, blocks, window, dim)
    kv = torch.cat([F.pad(kv[:, :-1], (0, 0, 0, 0, 1, 0)), kv], 2)
    q_blocks = q.view(batch, heads, blocks, window, dim)
    near = torch.einsum("bhnwd,bnkd->bhnwk", q_blocks, kv)
    near = near.reshape(batch, heads, length, 2 * window)
    mask = positions.mask(kind, x.dtype, mode.fault)
    columns = [near]
    if rate:
        entries = compress(x, layer, prefix + "compressor.", weights, positions, mode.fault)
        far = torch.matmul(q.view(batch, heads * length, dim), entries.transpose(1, 2))
        far = far.view(batch, heads, length, length // rate)
        far = _choose(far, x, latent, layer, weights, positions, mode)
        columns.append(far)
    sinks = weights.full(prefix + "sinks")
    sinks = sinks - 1e4 if mode.fault == "no sinks" else sinks
    columns.append(sinks.to(x.dtype).view(1, -1, 1, 1).expand(batch, -1, length, 1))
    shares = torch.softmax(torch.cat(columns, -1) + mask, -1)
    if kind == "C" and mode.train_index:
        teach = _index_loss(
            shares[..., 2 * window : -1], x, latent, layer, weights, positions, mode
        )
        aux.index_loss = aux.index_loss + teach

    near_shares = shares[..., : 2 * window].view(batch, heads, blocks, window, 2 * window)
    out = torch.einsum("bhnwk,bnkd->bhnwd", near_shares, kv).reshape(batch, heads, length, dim)
    if rate:
        far_shares = shares[..., 2 * window : -1].reshape(batch, heads * length, length // rate)
        out = out + torch.matmul(far_shares, entries).view(batch, heads, length, dim)
    out = out.transpose(1, 2)
    if mode.fault != "no output un-rotation":
        out = rotate(out, cos.unsqueeze(1), -sin.unsqueeze(1))
    groups = config.o_groups
    out = out.reshape(batch * length, groups, -1).transpose(0, 1)
    low = weights.half(prefix + "o_a_proj.weight").view(groups, -1, out.shape[-1])
    out = torch.bmm(out, low.transpose(1, 2)).transpose(0, 1).reshape(batch, length, -1)
    return F.linear(out, weights.half(prefix + "o_b_proj.weight"))


def compress(
    x: Tensor, layer: int, prefix: str, weights: Weights, positions: Positions, fault: str | None
) -> Tensor:
    """Entries [B, T // m, D] of a compressor, normed and rotated at their first token."""
    config, rate = weights.config, weights.config.rate(layer)
    batch, length, _ = x.shape
    count = length // rate
    kind = "CSA" if config.layers[layer] == "C" else "HCA"
    kv = F.linear(x, weights.half(prefix + "kv_proj.weight")).view(batch, count, rate, -1)
    gate = F.linear(x, weights.half(prefix + "gate_proj.weight")).view(batch, count, rate, -1)
    gate = gate.float()
    if fault != f"{kind} without position bias":
        gate = gate + weights.full(prefix + "position_bias")
    overlap = kind == "CSA"
    if overlap and fault == "no Ca overlap":
        dim = kv.shape[-1] // 2
        kv, gate, overlap = kv[..., dim:], gate[..., dim:], False
    pooled = pool_windows(kv, gate, overlap=overlap)
    pooled = rms_norm(pooled, weights.full(prefix + "kv_norm.weight"), weights.rms_eps)
    if kind == "HCA" and fault == "HCA keys not rotated":
        return pooled
    cos, sin = positions.turns[True]
    return rotate(pooled, cos[::rate][:count], sin[::rate][:count])


def index_scores(
    x: Tensor,
    latent: Tensor,
    keys: Tensor,
    prefix: str,
    weights: Weights,
    turns: tuple[Tensor, Tensor],
) -> Tensor:
    """The indexer's fp32 scores [B, Q, entries] for queries x [B, Q, H], latent [B, Q, q_lora]."""
    config = weights.config
    cos, sin = turns
    q = F.linear(latent, weights.half(prefix + "q_b_proj.weight"))
    q = q.unflatten(-1, (config.index_heads, config.index_dim))
    q = rotate(q, cos.unsqueeze(-2), sin.unsqueeze(-2))
    share = F.linear(x, weights.half(prefix + "scorer.weights_proj.weight")).float()
    share = share * (config.index_heads**-0.5 * config.index_dim**-0.5)
    if torch.is_grad_enabled():
        return _score(q, share, keys)
    batch, queries, heads = share.shape
    # a slice at a time: all heads of all queries of a long row would not fit
    step = max(64, (1 << 28) // (batch * heads * keys.shape[1]))
    pieces = range(0, queries, step)
    return torch.cat([_score(q[:, a : a + step], share[:, a : a + step], keys) for a in pieces], 1)


def _score(q: Tensor, share: Tensor, keys: Tensor) -> Tensor:
    heads = q.shape[2]
    dots = torch.matmul(q.flatten(1, 2), keys.transpose(-1, -2)).unflatten(1, (-1, heads))
    return torch.einsum("bqhe,bqh->bqe", F.relu(dots).float(), share)


def _index_keys(
    x: Tensor, layer: int, weights: Weights, positions: Positions, mode: Mode
) -> Tensor:
    prefix = f"model.layers.{layer}.self_attn.compressor.indexer."
    keys = compress(x, layer, prefix, weights, positions, mode.fault)
    if mode.index_keys is None:
        return keys
    if mode.index_keys != "mixed":
        rounded = round_keys(keys, mode.index_keys)
    else:
        row = torch.arange(keys.shape[0], device=keys.device).view(-1, 1, 1) % 4
        narrow = torch.where(row == 2, round_keys(keys, "fp8"), round_keys(keys, "fp4"))
        rounded = torch.where(row < 2, keys, narrow)
    return keys + (rounded - keys).detach()


def _choose(
    far: Tensor,
    x: Tensor,
    latent: Tensor,
    layer: int,
    weights: Weights,
    positions: Positions,
    mode: Mode,
) -> Tensor:
    """Scores of entries with those set to -inf that the layer does not read in this mode."""
    kind = weights.config.layers[layer]
    if mode.fault == f"no {'CSA' if kind == 'C' else 'HCA'} entries":
        return torch.full_like(far, float("-inf"))
    if kind != "C" or mode.topk is None:
        return far
    width = min(mode.topk, far.shape[-1])
    if mode.topk_live is None and width == far.shape[-1]:
        return far
    window = weights.config.window
    prefix = f"model.layers.{layer}.self_attn.compressor.indexer."
    with torch.no_grad():
        keys = _index_keys(x, layer, weights, positions, mode)
        scores = index_scores(x, latent, keys, prefix, weights, positions.turns[True])
        if mode.fault == "random selection":
            scores = torch.rand_like(scores)
        shown = positions.mask("C", x.dtype, mode.fault)
        scores = scores + shown[:, 2 * window : -1].float()
        best = scores.topk(width, -1).indices
        unread = torch.ones_like(scores, dtype=torch.bool)
        late = torch.zeros_like(best, dtype=torch.bool)
        if mode.topk_live is not None:
            late = late | (torch.arange(width, device=best.device) >= mode.topk_live)
        unread.scatter_(-1, best, late)
    return far.masked_fill(unread.unsqueeze(1), float("-inf"))


def _index_loss(
    shares: Tensor,
    x: Tensor,
    latent: Tensor,
    layer: int,
    weights: Weights,
    positions: Positions,
    mode: Mode,
) -> Tensor:
    """KL between what attention read (summed over heads) and a softmax of the index scores.

    Only `mode.rows` of the queries teach; each weighs as much as it read from entries at all.
    Inputs are detached: the indexer follows the model, never the other way round.
    """
    if mode.rows is None:
        raise ValueError("train_index needs Mode.rows, the query positions that teach the indexer")
    rows, window, rate = mode.rows, weights.config.window, weights.config.csa_rate
    x, latent = x.detach(), latent.detach()
    prefix = f"model.layers.{layer}.self_attn.compressor.indexer."
    keys = _index_keys(x, layer, weights, positions, mode)
    some_x = x.gather(1, rows[..., None].expand(-1, -1, x.shape[-1]))
    some_latent = latent.gather(1, rows[..., None].expand(-1, -1, latent.shape[-1]))
    cos, sin = positions.turns[True]
    scores = index_scores(some_x, some_latent, keys, prefix, weights, (cos[rows], sin[rows]))
    shown = positions.mask("C", x.dtype, mode.fault)[:, 2 * window : -1][rows].float()
    scores = scores + shown.clamp_min(_HIDDEN)
    with torch.no_grad():
        heads, entries = shares.shape[1], shares.shape[-1]
        picked = rows[:, None, :, None].expand(-1, heads, -1, entries)
        target = shares.gather(2, picked).float().sum(1)
        mass = target.sum(-1, keepdim=True)
        target = target / mass.clamp_min(1e-9)
        weight = mass.squeeze(-1) * (rows >= 4 * rate)
    log_share = torch.log_softmax(scores, -1).masked_fill(target == 0, 0.0)
    kl = (target * (target.clamp_min(1e-9).log() - log_share)).sum(-1)
    return (kl * weight).sum() / weight.sum().clamp_min(1e-6)
