"""Attention of one layer over whole rows: sliding window, compressed entries, sink, indexer."""
# mypy: disable-error-code="no-untyped-call"
# torch leaves Function.apply, unflatten, backward and Stream without types

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from engine.nano.config import NanoConfig
from engine.nano.layers import pool_windows
from engine.nano.mode import Aux, Mode
from engine.nano.norm_rotate import NormRotate, Shape, norm_rotate_torch
from engine.nano.rounding import round_keys
from engine.nano.weights import Weights

# A finite "never": rows of -inf alone would give NaN gradients in the indexer's loss.
_HIDDEN = -1e4


class Positions:
    """Cosines, sines and masks for rows of one length."""

    def __init__(
        self, config: NanoConfig, length: int, weights: Weights, fault: str | None
    ) -> None:
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


@dataclass(frozen=True, slots=True)
class Site:
    """One layer's attention in one forward: where it is, and how it is computed."""

    layer: int
    weights: Weights
    positions: Positions
    mode: Mode
    fused: bool

    @property
    def kind(self) -> str:
        """S, C or H."""
        return self.weights.config.layers[self.layer]

    @property
    def rate(self) -> int:
        """Tokens of an entry; 0 for a sliding layer."""
        return self.weights.config.rate(self.layer)

    @property
    def prefix(self) -> str:
        """Of the layer's parameters."""
        return f"model.layers.{self.layer}.self_attn."

    def linear(self, x: Tensor, name: str) -> Tensor:
        """X times a matrix of this layer."""
        return functional.linear(x, self.weights.cast(f"{self.prefix}{name}.weight"))

    def turn(
        self, x: Tensor, norm: str | None, turns: tuple[Tensor, Tensor] | None, shape: Shape
    ) -> Tensor:
        """Norm (with the weight `norm`) and rotation of x, fused where that is on."""
        weight = None if norm is None else self.weights.full(f"{self.prefix}{norm}.weight")
        cos, sin = turns if turns is not None else (None, None)
        if self.fused:
            out: Tensor = NormRotate.apply(x, weight, cos, sin, shape)
            return out
        return norm_rotate_torch(x, weight, cos, sin, shape)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """See `Positions.mask`."""
        return self.positions.mask(self.kind, dtype, self.mode.fault)


def attention(x: Tensor, site: Site, aux: Aux) -> Tensor:
    """Normed x [B, T, H] -> [B, T, H]. T is a multiple of the window and of every rate."""
    config, rate = site.weights.config, site.rate
    batch, length, _ = x.shape
    heads, dim, window = config.heads, config.head_dim, config.window
    turns, eps = site.positions.turns[site.kind != "S"], site.weights.rms_eps

    latent = site.turn(site.linear(x, "q_a_proj"), "q_a_norm", None, Shape(eps=eps))
    q = site.linear(latent, "q_b_proj").view(batch, length, heads, dim)
    q = site.turn(q, None, turns, Shape(eps=eps, scale=dim**-0.5, heads=heads))
    q = q.transpose(1, 2).contiguous()
    kv = site.turn(site.linear(x, "kv_proj"), "kv_norm", turns, Shape(eps=eps))

    blocks = length // window
    kv = kv.view(batch, blocks, window, dim)
    kv = torch.cat([functional.pad(kv[:, :-1], (0, 0, 0, 0, 1, 0)), kv], 2)
    near = torch.einsum("bhnwd,bnkd->bhnwk", q.view(batch, heads, blocks, window, dim), kv)
    columns = [near.reshape(batch, heads, length, 2 * window)]
    if rate:
        entries = compress(x, "compressor.", site)
        far = torch.matmul(q.view(batch, heads * length, dim), entries.transpose(1, 2))
        columns.append(_choose(far.view(batch, heads, length, -1), x, latent, site))
    columns.append(_sink_column(site, batch, length, x.dtype))
    shares = torch.softmax(torch.cat(columns, -1) + site.mask(x.dtype), -1)
    if site.kind == "C" and site.mode.train_index:
        read = shares[..., 2 * window : -1]
        aux.index_loss = aux.index_loss + _index_loss(read, x, latent, site)

    near = shares[..., : 2 * window].view(batch, heads, blocks, window, 2 * window)
    out = torch.einsum("bhnwk,bnkd->bhnwd", near, kv).reshape(batch, heads, length, dim)
    if rate:
        far = shares[..., 2 * window : -1].reshape(batch, heads * length, length // rate)
        out = out + torch.matmul(far, entries).view(batch, heads, length, dim)
    return _project_out(out.transpose(1, 2), site, turns)


def _sink_column(site: Site, batch: int, length: int, dtype: torch.dtype) -> Tensor:
    sinks = site.weights.full(site.prefix + "sinks")
    sinks = sinks - 1e4 if site.mode.fault == "no sinks" else sinks
    return sinks.to(dtype).view(1, -1, 1, 1).expand(batch, -1, length, 1)


def _project_out(out: Tensor, site: Site, turns: tuple[Tensor, Tensor]) -> Tensor:
    """Un-rotate [B, T, heads, D], then the grouped projection."""
    batch, length, heads, _ = out.shape
    if site.mode.fault != "no output un-rotation":
        out = site.turn(out, None, turns, Shape(heads=heads, inverse=True))
    groups = site.weights.config.o_groups
    out = out.reshape(batch * length, groups, -1).transpose(0, 1)
    low = site.weights.cast(site.prefix + "o_a_proj.weight").view(groups, -1, out.shape[-1])
    out = torch.bmm(out, low.transpose(1, 2)).transpose(0, 1).reshape(batch, length, -1)
    return site.linear(out, "o_b_proj")


def compress(x: Tensor, part: str, site: Site) -> Tensor:
    """Entries [B, T // m, D] of the compressor `part`, normed and rotated at their first token."""
    rate, fault = site.rate, site.mode.fault
    batch, length, _ = x.shape
    count = length // rate
    name = "CSA" if site.kind == "C" else "HCA"
    kv = site.linear(x, part + "kv_proj").view(batch, count, rate, -1)
    gate = site.linear(x, part + "gate_proj").view(batch, count, rate, -1).float()
    if fault != f"{name} without position bias":
        gate = gate + site.weights.full(site.prefix + part + "position_bias")
    overlap = name == "CSA"
    if overlap and fault == "no Ca overlap":
        dim = kv.shape[-1] // 2
        kv, gate, overlap = kv[..., dim:], gate[..., dim:], False
    pooled = pool_windows(kv, gate, overlap=overlap)
    cos, sin = site.positions.turns[True]
    turns = (cos[::rate][:count], sin[::rate][:count])
    still = name == "HCA" and fault == "HCA keys not rotated"
    shape = Shape(eps=site.weights.rms_eps)
    return site.turn(pooled, part + "kv_norm", None if still else turns, shape)


_INDEXER = "compressor.indexer."


def index_scores(
    x: Tensor, latent: Tensor, keys: Tensor, site: Site, turns: tuple[Tensor, Tensor]
) -> Tensor:
    """The indexer's fp32 scores [B, Q, entries] for queries x [B, Q, H], latent [B, Q, q_lora]."""
    config = site.weights.config
    q = site.linear(latent, _INDEXER + "q_b_proj")
    q = q.unflatten(-1, (config.index_heads, config.index_dim))
    q = site.turn(q, None, turns, Shape(heads=config.index_heads))
    share = site.linear(x, _INDEXER + "scorer.weights_proj").float()
    share = share * (config.index_heads**-0.5 * config.index_dim**-0.5)
    if torch.is_grad_enabled():
        return _score(q, share, keys)
    batch, queries, heads = share.shape
    # a slice at a time: all heads of all queries of a long row would not fit
    step = max(64, _SLICE // (batch * heads * keys.shape[1]))
    pieces = range(0, queries, step)
    return torch.cat([_score(q[:, a : a + step], share[:, a : a + step], keys) for a in pieces], 1)


_SLICE = 1 << 28


def _score(q: Tensor, share: Tensor, keys: Tensor) -> Tensor:
    heads = q.shape[2]
    dots = torch.matmul(q.flatten(1, 2), keys.transpose(-1, -2)).unflatten(1, (-1, heads))
    return torch.einsum("bqhe,bqh->bqe", functional.relu(dots).float(), share)


def _index_keys(x: Tensor, site: Site) -> Tensor:
    keys = compress(x, _INDEXER, site)
    form = site.mode.index_keys
    if form is None:
        return keys
    if form != "mixed":
        rounded = round_keys(keys, form)
    else:
        row = torch.arange(keys.shape[0], device=keys.device).view(-1, 1, 1) % 4
        narrow = torch.where(row == 2, round_keys(keys, "fp8"), round_keys(keys, "fp4"))
        rounded = torch.where(row < 2, keys, narrow)
    return keys + (rounded - keys).detach()


def _choose(far: Tensor, x: Tensor, latent: Tensor, site: Site) -> Tensor:
    """Scores of entries with those set to -inf that the layer does not read in this mode."""
    mode = site.mode
    if mode.fault == f"no {'CSA' if site.kind == 'C' else 'HCA'} entries":
        return torch.full_like(far, float("-inf"))
    if site.kind != "C" or mode.topk is None:
        return far
    width = min(mode.topk, far.shape[-1])
    if mode.topk_live is None and width == far.shape[-1]:
        return far
    window = site.weights.config.window
    with torch.no_grad():
        keys = _index_keys(x, site)
        scores = index_scores(x, latent, keys, site, site.positions.turns[True])
        if mode.fault == "random selection":
            scores = torch.rand_like(scores)
        scores = scores + site.mask(x.dtype)[:, 2 * window : -1].float()
        best = scores.topk(width, -1).indices
        unread = torch.ones_like(scores, dtype=torch.bool)
        late = torch.zeros_like(best, dtype=torch.bool)
        if mode.topk_live is not None:
            late = late | (torch.arange(width, device=best.device) >= mode.topk_live)
        unread.scatter_(-1, best, late)
    return far.masked_fill(unread.unsqueeze(1), float("-inf"))


def _index_loss(shares: Tensor, x: Tensor, latent: Tensor, site: Site) -> Tensor:
    """KL between what attention read (summed over heads) and a softmax of the index scores.

    Only `mode.rows` of the queries teach; each weighs as much as it read from entries at all.
    Inputs are detached: the indexer follows the model, never the other way round.
    """
    rows = site.mode.rows
    if rows is None:
        raise ValueError("train_index needs Mode.rows, the query positions that teach the indexer")
    x, latent = x.detach(), latent.detach()
    keys = _index_keys(x, site)
    some_x = x.gather(1, rows[..., None].expand(-1, -1, x.shape[-1]))
    some_latent = latent.gather(1, rows[..., None].expand(-1, -1, latent.shape[-1]))
    cos, sin = site.positions.turns[True]
    scores = index_scores(some_x, some_latent, keys, site, (cos[rows], sin[rows]))
    window = site.weights.config.window
    shown = site.mask(x.dtype)[:, 2 * window : -1][rows].float()
    scores = scores + shown.clamp_min(_HIDDEN)
    with torch.no_grad():
        heads, entries = shares.shape[1], shares.shape[-1]
        picked = rows[:, None, :, None].expand(-1, heads, -1, entries)
        target = shares.gather(2, picked).float().sum(1)
        mass = target.sum(-1, keepdim=True)
        target = target / mass.clamp_min(1e-9)
        weight = mass.squeeze(-1) * (rows >= 4 * site.rate)
    log_share = torch.log_softmax(scores, -1).masked_fill(target == 0, 0.0)
    kl = (target * (target.clamp_min(1e-9).log() - log_share)).sum(-1)
    return (kl * weight).sum() / weight.sum().clamp_min(1e-6)
