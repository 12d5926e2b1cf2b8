"""What the model's shape is, from a checkpoint's config.json."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reference.rope import Yarn

SLIDING, CSA, HCA = (
    "sliding_attention",
    "compressed_sparse_attention",
    "heavily_compressed_attention",
)
KIND_BY_RATIO = {0: SLIDING, 4: CSA, 128: HCA}


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """A DeepSeek-V4 model; names are those of config.json where it has one."""

    vocab_size: int
    hidden_size: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    o_groups: int
    num_experts_per_tok: int
    routed_scaling_factor: float
    swiglu_limit: float
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    sliding_window: int
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    rms_norm_eps: float
    max_position_embeddings: int
    layer_kinds: tuple[str, ...]
    hash_layers: tuple[bool, ...]
    rates: dict[str, int]
    rope_theta: float
    compress_rope_theta: float
    yarn: Yarn | None
    eos_token_ids: tuple[int, ...]
    tie_word_embeddings: bool


def read_config(folder: Path) -> Config:
    """Read config.json.

    Raises: ValueError: it is missing, no JSON, of another model, or lacks a key; names which.
    """
    path = folder / "config.json"
    try:
        raw = json.loads(path.read_text(encoding="utf-8"))
        return _build(raw)
    except KeyError as missing:
        raise ValueError(f"{path} has no key {missing.args[0]!r}") from missing
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"{path} cannot be used: {error}") from error


def _build(raw: dict[str, Any]) -> Config:
    if raw["model_type"] != "deepseek_v4":
        raise ValueError(f"model_type is {raw['model_type']!r}, not 'deepseek_v4'")
    layers = raw["num_hidden_layers"]
    kinds = raw.get("layer_types") or [KIND_BY_RATIO[r] for r in raw["compress_ratios"]]
    mlp = raw.get("mlp_layer_types")
    hashed = (
        [k == "hash_moe" for k in mlp]
        if mlp
        else [i < raw["num_hash_layers"] for i in range(layers)]
    )
    rates = raw.get("compress_rates") or {CSA: 4, HCA: 128}
    eos = raw.get("eos_token_id", 1)
    theta, compress_theta, yarn = _rope(raw)
    names = set(Config.__dataclass_fields__) & set(raw)
    taken = {name: raw[name] for name in names}
    taken |= {
        "layer_kinds": tuple(kinds[:layers]),
        "hash_layers": tuple(hashed[:layers]),
        "rates": {
            SLIDING: 0,
            CSA: raw.get("compress_rate_csa") or rates[CSA],
            HCA: raw.get("compress_rate_hca") or rates[HCA],
        },
        "rope_theta": theta,
        "compress_rope_theta": compress_theta,
        "yarn": yarn,
        "eos_token_ids": tuple(eos if isinstance(eos, list) else [eos]),
        "tie_word_embeddings": raw.get("tie_word_embeddings", False),
    }
    missing = set(Config.__dataclass_fields__) - set(taken)
    if missing:
        raise KeyError(min(missing))
    return Config(**taken)


def _rope(raw: dict[str, Any]) -> tuple[float, float, Yarn | None]:
    """Plain theta, theta of compressing layers, and their YaRN; nested or flat form."""
    nested = raw.get("rope_parameters") or {}
    scaling = nested.get("compress") or raw.get("rope_scaling") or {}
    theta = (nested.get("main") or {}).get("rope_theta") or raw.get("rope_theta", 10000.0)
    compress_theta = scaling.get("rope_theta") or raw.get("compress_rope_theta", 160000.0)
    kind = scaling.get("rope_type") or scaling.get("type") or "default"
    if kind == "default":
        return theta, compress_theta, None
    if kind != "yarn" or (scaling.get("attention_factor") or 1.0) != 1.0:
        raise ValueError(f"rope scaling {scaling}")
    yarn = Yarn(
        factor=scaling["factor"],
        original_max_position=scaling["original_max_position_embeddings"],
        beta_fast=scaling.get("beta_fast", 32),
        beta_slow=scaling.get("beta_slow", 1),
    )
    return theta, compress_theta, yarn
