"""The shape of a model, read from a checkpoint's config.json.

Only what the engine computes with. Whatever the engine cannot compute is refused in words, since a
key that is read past is a wrong model.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from engine.errors import CheckpointError

AttentionKind = Literal[
    "sliding_attention", "compressed_sparse_attention", "heavily_compressed_attention"
]
SLIDING: AttentionKind = "sliding_attention"
CSA: AttentionKind = "compressed_sparse_attention"
HCA: AttentionKind = "heavily_compressed_attention"
_KINDS_BY_RATIO: dict[int, AttentionKind] = {0: SLIDING, 4: CSA, 128: HCA}


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeConfig:
    """Rotary frequencies of one kind of layer. `factor` 1 means plain RoPE, else YaRN."""

    theta: float
    factor: float = 1.0
    original_max_position: int = 0
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """A DeepSeek-V4 model. Field names follow config.json where it has a name for the thing."""

    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    head_dim: int
    rope_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    moe_intermediate_size: int
    num_experts: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    swiglu_limit: float
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    sliding_window: int
    layer_kinds: tuple[AttentionKind, ...]
    hash_layers: tuple[bool, ...]
    csa_rate: int
    hca_rate: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    rms_norm_eps: float
    rope: RopeConfig
    compress_rope: RopeConfig
    max_position: int
    eos_token_ids: tuple[int, ...]
    bos_token_id: int
    tie_word_embeddings: bool

    def rate(self, layer: int) -> int:
        """Tokens of one compressed entry in that layer; 0 where there are none."""
        return {SLIDING: 0, CSA: self.csa_rate, HCA: self.hca_rate}[self.layer_kinds[layer]]

    @property
    def largest_rate(self) -> int:
        """A page must be a multiple of it, so that every window is closed at a page's edge."""
        return max((self.rate(layer) for layer in range(self.num_layers)), default=0)


def read_architecture(folder: Path) -> Architecture:
    """Read config.json of a checkpoint.

    Raises:
        CheckpointError: there is no such file, or it describes something else than this engine
            computes.
    """
    path = folder / "config.json"
    config = _load(folder, path)
    if config.get("model_type") != "deepseek_v4":
        raise CheckpointError(
            f"{path} describes a model of type {config.get('model_type')!r}; this engine runs "
            "'deepseek_v4' only."
        )
    _refuse_unsupported(config, path)
    try:
        return _build(config)
    except KeyError as missing:
        raise CheckpointError(
            f"{path} has no key {missing.args[0]!r}, which the engine needs."
        ) from None
    except (TypeError, ValueError, AttributeError) as wrong:
        raise CheckpointError(f"{path} holds a value that cannot be used: {wrong}.") from None


def _load(folder: Path, path: Path) -> dict[str, Any]:
    if not folder.is_dir():
        raise CheckpointError(f"There is no checkpoint folder {folder}; --model names one.")
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise CheckpointError(f"{folder} has no config.json, so it is not a checkpoint.") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(config, dict):
        raise CheckpointError(f"{path} holds no JSON object.")
    return config


def _refuse_unsupported(config: dict[str, Any], path: Path) -> None:
    wanted = {
        "scoring_func": "sqrtsoftplus",
        "hidden_act": "silu",
        "n_shared_experts": 1,
        "norm_topk_prob": True,
        "attention_bias": False,
        "mlp_bias": False,
    }
    for key, value in wanted.items():
        if config.get(key, value) != value:
            raise CheckpointError(
                f"{path} sets {key} to {config[key]!r}; this engine computes {value!r} only."
            )
    if config.get("quantization_config"):
        raise CheckpointError(
            f"{path} describes quantised weights; this engine loads bf16 or fp32."
        )


def _build(config: dict[str, Any]) -> Architecture:
    layers = int(config["num_hidden_layers"])
    head_dim = int(config["head_dim"])
    rope_dim = int(config.get("qk_rope_head_dim") or head_dim * config["partial_rotary_factor"])
    kinds = _layer_kinds(config, layers)
    rates = config.get("compress_rates") or {CSA: 4, HCA: 128}
    main, compress = _rope_configs(config)
    eos = config.get("eos_token_id", 1)
    return Architecture(
        vocab_size=int(config["vocab_size"]),
        hidden_size=int(config["hidden_size"]),
        num_layers=layers,
        num_heads=int(config["num_attention_heads"]),
        head_dim=head_dim,
        rope_dim=rope_dim,
        q_lora_rank=int(config["q_lora_rank"]),
        o_groups=int(config["o_groups"]),
        o_lora_rank=int(config["o_lora_rank"]),
        moe_intermediate_size=int(config["moe_intermediate_size"]),
        num_experts=int(config["n_routed_experts"]),
        num_experts_per_tok=int(config["num_experts_per_tok"]),
        routed_scaling_factor=float(config["routed_scaling_factor"]),
        swiglu_limit=float(config["swiglu_limit"]),
        index_n_heads=int(config["index_n_heads"]),
        index_head_dim=int(config["index_head_dim"]),
        index_topk=int(config["index_topk"]),
        sliding_window=int(config["sliding_window"]),
        layer_kinds=kinds,
        hash_layers=_hash_layers(config, layers),
        csa_rate=int(config.get("compress_rate_csa") or rates[CSA]),
        hca_rate=int(config.get("compress_rate_hca") or rates[HCA]),
        hc_mult=int(config["hc_mult"]),
        hc_sinkhorn_iters=int(config["hc_sinkhorn_iters"]),
        hc_eps=float(config["hc_eps"]),
        rms_norm_eps=float(config["rms_norm_eps"]),
        rope=main,
        compress_rope=compress,
        max_position=int(config["max_position_embeddings"]),
        eos_token_ids=tuple(eos) if isinstance(eos, list) else () if eos is None else (int(eos),),
        bos_token_id=int(config.get("bos_token_id", 0)),
        tie_word_embeddings=bool(config.get("tie_word_embeddings", False)),
    )


def _layer_kinds(config: dict[str, Any], layers: int) -> tuple[AttentionKind, ...]:
    if config.get("layer_types") is not None:
        kinds = tuple(config["layer_types"])[:layers]
    else:
        kinds = tuple(_KINDS_BY_RATIO[ratio] for ratio in config["compress_ratios"][:layers])
    unknown = set(kinds) - {SLIDING, CSA, HCA}
    if unknown or len(kinds) != layers:
        raise ValueError(f"layer_types {kinds} for {layers} layers")
    return kinds


def _hash_layers(config: dict[str, Any], layers: int) -> tuple[bool, ...]:
    if config.get("mlp_layer_types") is not None:
        return tuple(kind == "hash_moe" for kind in config["mlp_layer_types"][:layers])
    count = int(config["num_hash_layers"])
    return tuple(layer < count for layer in range(layers))


def _rope_configs(config: dict[str, Any]) -> tuple[RopeConfig, RopeConfig]:
    """Read the nested form (`main`, `compress`) or the flat one (`rope_scaling`)."""
    nested = config.get("rope_parameters") or {}
    scaling = nested.get("compress") or config.get("rope_scaling") or {}
    main_theta = (nested.get("main") or {}).get("rope_theta", config.get("rope_theta", 10000.0))
    theta = scaling.get("rope_theta", config.get("compress_rope_theta", 160000.0))
    kind = scaling.get("rope_type", scaling.get("type", "default"))
    if kind == "default":
        compress = RopeConfig(theta=float(theta))
    elif kind == "yarn" and float(scaling.get("attention_factor") or 1.0) == 1.0:
        compress = RopeConfig(
            theta=float(theta),
            factor=float(scaling["factor"]),
            original_max_position=int(scaling["original_max_position_embeddings"]),
            beta_fast=float(scaling.get("beta_fast", 32)),
            beta_slow=float(scaling.get("beta_slow", 1)),
        )
    else:
        raise ValueError(f"rope scaling {scaling}")
    return RopeConfig(theta=float(main_theta)), compress
