"""Loading a checkpoint: names, shapes, and the exact reparametrisation of the indexer.

Names and layout are those of a Hugging Face model's state dict. Everything is held in fp32.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from engine.architecture import CSA, SLIDING, Architecture
from engine.errors import CheckpointError


@dataclass(frozen=True, slots=True, kw_only=True)
class HyperConnection:
    """mHC parameters of one site, fp32: fn [(2+n)n, nH], base [(2+n)n], scale [3].

    Of the head: fn [n, nH], base [n], scale [1].
    """

    fn: Tensor
    base: Tensor
    scale: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class CompressorWeights:
    """One compressor: kv and gate [coff*D, H], ape [m, coff*D], norm [D]; coff 2 if it overlaps."""

    kv: Tensor
    gate: Tensor
    ape: Tensor
    norm: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexerWeights:
    """q_b [Ni*Di, q_lora], head_weights [Ni, H], and the index keys' own compressor."""

    q_b: Tensor
    head_weights: Tensor
    compressor: CompressorWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionWeights:
    """Attention of one layer. `compressor` and `indexer` are None where the kind has none."""

    q_a: Tensor
    q_norm: Tensor
    q_b: Tensor
    kv: Tensor
    kv_norm: Tensor
    o_a: Tensor
    o_b: Tensor
    sinks: Tensor
    compressor: CompressorWeights | None
    indexer: IndexerWeights | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeWeights:
    """Experts of one layer. Exactly one of `bias` and `tid2eid` is set."""

    gate: Tensor
    bias: Tensor | None
    tid2eid: Tensor | None
    gate_up: Tensor
    down: Tensor
    shared_gate: Tensor
    shared_up: Tensor
    shared_down: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerWeights:
    """One block."""

    attn_hc: HyperConnection
    attn_norm: Tensor
    attention: AttentionWeights
    ffn_hc: HyperConnection
    ffn_norm: Tensor
    moe: MoeWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """A whole model."""

    embed: Tensor
    layers: tuple[LayerWeights, ...]
    head_hc: HyperConnection
    norm: Tensor
    lm_head: Tensor


class _Reader:
    """Takes tensors out of a checkpoint by name, checking every shape."""

    def __init__(self, folder: Path, tensors: dict[str, Tensor], device: torch.device) -> None:
        self.folder = folder
        self.tensors = tensors
        self.device = device

    def take(self, name: str, *shape: int) -> Tensor:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise CheckpointError(f"The checkpoint {self.folder} has no tensor {name!r}.")
        if tuple(tensor.shape) != shape:
            raise CheckpointError(
                f"The checkpoint {self.folder} has {name!r} of shape {tuple(tensor.shape)}, but "
                f"its config.json asks for {shape}."
            )
        dtype = torch.float32 if tensor.is_floating_point() else torch.int32
        return tensor.to(device=self.device, dtype=dtype).contiguous()


def load_weights(
    folder: Path,
    architecture: Architecture,
    device: torch.device,
    *,
    index_outlier: float | None = None,
) -> Weights:
    """Load every tensor of a checkpoint onto a device.

    Args:
        folder: holds model.safetensors, or shards with model.safetensors.index.json.
        architecture: what config.json of the same folder says.
        device: where the tensors go.
        index_outlier: see `scale_index_channel`.

    Raises:
        CheckpointError: a file is missing or damaged, or a tensor is missing or has another shape
            than config.json says.
    """
    reader = _Reader(folder, _read_files(folder), device)
    if index_outlier is not None:
        scale_index_channel(reader.tensors, architecture, index_outlier)
    a, hidden = architecture, architecture.hidden_size
    embed = reader.take("model.embed_tokens.weight", a.vocab_size, hidden)
    layers = tuple(_layer(reader, a, layer) for layer in range(a.num_layers))
    head = HyperConnection(
        fn=reader.take("model.hc_head.hc_fn", a.hc_mult, a.hc_mult * hidden),
        base=reader.take("model.hc_head.hc_base", a.hc_mult),
        scale=reader.take("model.hc_head.hc_scale", 1),
    )
    lm_head = (
        embed if a.tie_word_embeddings else reader.take("lm_head.weight", a.vocab_size, hidden)
    )
    norm = reader.take("model.norm.weight", hidden)
    return Weights(embed=embed, layers=layers, head_hc=head, norm=norm, lm_head=lm_head)


def scale_index_channel(
    tensors: dict[str, Tensor], architecture: Architecture, factor: float
) -> None:
    """Give the index keys an outlier: channel 0 grows by `factor`, in every CSA layer, in place.

    The queries' channel 0 shrinks by the same factor, so scores do not change: with a power of two
    every product is equal to the bit in fp32. The keys' norm weight comes after the division by the
    root mean square, and channel 0 lies outside the rotary tail, so neither undoes the change.

    Raises:
        CheckpointError: channel 0 of the index keys is rotated in this model, and rotation would
            mix it with channel 1.
    """
    if architecture.index_head_dim <= architecture.rope_dim:
        raise CheckpointError(
            f"--index-outlier needs an index channel without rotary embedding, but all "
            f"{architecture.index_head_dim} channels are rotated in this model."
        )
    for layer, kind in enumerate(architecture.layer_kinds):
        if kind != CSA:
            continue
        prefix = f"model.layers.{layer}.self_attn.compressor.indexer"
        norm, q_b = f"{prefix}.kv_norm.weight", f"{prefix}.q_b_proj.weight"
        if norm in tensors and q_b in tensors:
            tensors[norm] = tensors[norm].float().clone()
            tensors[norm][0] *= factor
            tensors[q_b] = tensors[q_b].float().clone()
            tensors[q_b][:: architecture.index_head_dim] /= factor


def _read_files(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in _files(folder):
        try:
            with safe_open(path, framework="pt") as file:
                for name in file.keys():  # noqa: SIM118 - a safetensors handle is no mapping
                    tensors[name] = file.get_tensor(name)
        except FileNotFoundError:
            raise CheckpointError(f"The checkpoint file {path} does not exist.") from None
        except (SafetensorError, OSError) as error:
            raise CheckpointError(
                f"The checkpoint file {path} is damaged or cut off: {error}."
            ) from None
    return tensors


def _files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return [folder / "model.safetensors"]
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as error:
        raise CheckpointError(f"{index} is no index of shards: {error}.") from None
    if any(not isinstance(name, str) or Path(name).name != name for name in names):
        raise CheckpointError(f"{index} names a shard outside its own folder.")
    return [folder / name for name in sorted(names)]


def _layer(reader: _Reader, a: Architecture, layer: int) -> LayerWeights:
    prefix = f"model.layers.{layer}"
    return LayerWeights(
        attn_hc=_hyper(reader, a, f"{prefix}.attn_hc"),
        attn_norm=reader.take(f"{prefix}.input_layernorm.weight", a.hidden_size),
        attention=_attention(reader, a, layer),
        ffn_hc=_hyper(reader, a, f"{prefix}.ffn_hc"),
        ffn_norm=reader.take(f"{prefix}.post_attention_layernorm.weight", a.hidden_size),
        moe=_moe(reader, a, layer),
    )


def _hyper(reader: _Reader, a: Architecture, prefix: str) -> HyperConnection:
    rows = (2 + a.hc_mult) * a.hc_mult
    return HyperConnection(
        fn=reader.take(f"{prefix}.fn", rows, a.hc_mult * a.hidden_size),
        base=reader.take(f"{prefix}.base", rows),
        scale=reader.take(f"{prefix}.scale", 3),
    )


def _attention(reader: _Reader, a: Architecture, layer: int) -> AttentionWeights:
    prefix, kind = f"model.layers.{layer}.self_attn", a.layer_kinds[layer]
    heads, group_width = a.num_heads * a.head_dim, a.num_heads * a.head_dim // a.o_groups
    compressor = indexer = None
    if kind != SLIDING:
        name = f"{prefix}.compressor"
        compressor = _compressor(reader, a, name, a.head_dim, a.rate(layer), overlap=kind == CSA)
    if kind == CSA:
        indexer = _indexer(reader, a, f"{prefix}.compressor.indexer")
    return AttentionWeights(
        q_a=reader.take(f"{prefix}.q_a_proj.weight", a.q_lora_rank, a.hidden_size),
        q_norm=reader.take(f"{prefix}.q_a_norm.weight", a.q_lora_rank),
        q_b=reader.take(f"{prefix}.q_b_proj.weight", heads, a.q_lora_rank),
        kv=reader.take(f"{prefix}.kv_proj.weight", a.head_dim, a.hidden_size),
        kv_norm=reader.take(f"{prefix}.kv_norm.weight", a.head_dim),
        o_a=reader.take(f"{prefix}.o_a_proj.weight", a.o_groups * a.o_lora_rank, group_width),
        o_b=reader.take(f"{prefix}.o_b_proj.weight", a.hidden_size, a.o_groups * a.o_lora_rank),
        sinks=reader.take(f"{prefix}.sinks", a.num_heads),
        compressor=compressor,
        indexer=indexer,
    )


def _compressor(
    reader: _Reader, a: Architecture, prefix: str, width: int, rate: int, *, overlap: bool
) -> CompressorWeights:
    rows = width * (2 if overlap else 1)
    return CompressorWeights(
        kv=reader.take(f"{prefix}.kv_proj.weight", rows, a.hidden_size),
        gate=reader.take(f"{prefix}.gate_proj.weight", rows, a.hidden_size),
        ape=reader.take(f"{prefix}.position_bias", rate, rows),
        norm=reader.take(f"{prefix}.kv_norm.weight", width),
    )


def _indexer(reader: _Reader, a: Architecture, prefix: str) -> IndexerWeights:
    queries = a.index_n_heads * a.index_head_dim
    return IndexerWeights(
        q_b=reader.take(f"{prefix}.q_b_proj.weight", queries, a.q_lora_rank),
        head_weights=reader.take(
            f"{prefix}.scorer.weights_proj.weight", a.index_n_heads, a.hidden_size
        ),
        compressor=_compressor(reader, a, prefix, a.index_head_dim, a.csa_rate, overlap=True),
    )


def _moe(reader: _Reader, a: Architecture, layer: int) -> MoeWeights:
    prefix, width = f"model.layers.{layer}.mlp", a.moe_intermediate_size
    bias = tid2eid = None
    if a.hash_layers[layer]:
        name = f"{prefix}.gate.tid2eid"
        tid2eid = reader.take(name, a.vocab_size, a.num_experts_per_tok)
        _check_experts(name, tid2eid, a.num_experts)
    else:
        bias = reader.take(f"{prefix}.gate.e_score_correction_bias", a.num_experts)
    return MoeWeights(
        gate=reader.take(f"{prefix}.gate.weight", a.num_experts, a.hidden_size),
        bias=bias,
        tid2eid=tid2eid,
        gate_up=reader.take(
            f"{prefix}.experts.gate_up_proj", a.num_experts, 2 * width, a.hidden_size
        ),
        down=reader.take(f"{prefix}.experts.down_proj", a.num_experts, a.hidden_size, width),
        shared_gate=reader.take(f"{prefix}.shared_experts.gate_proj.weight", width, a.hidden_size),
        shared_up=reader.take(f"{prefix}.shared_experts.up_proj.weight", width, a.hidden_size),
        shared_down=reader.take(f"{prefix}.shared_experts.down_proj.weight", a.hidden_size, width),
    )


def _check_experts(name: str, table: Tensor, num_experts: int) -> None:
    low, high = int(table.min()), int(table.max())
    if low < 0 or high >= num_experts:
        raise CheckpointError(
            f"{name!r} names experts {low} to {high}, but the model has {num_experts}."
        )
