"""Names, shapes and the seeded start of every parameter, by the names that `transformers` uses."""

import math
from collections.abc import Callable

import torch
from torch import Tensor

from engine.nano.config import NanoConfig

Shapes = dict[str, tuple[int, ...]]
Draw = Callable[[tuple[int, ...], torch.Generator], Tensor]
"""Numbers of mean 0 and variance 1 in that shape, fp32."""

# Kept in fp32 in the exported file; everything else that floats is bf16.
_FP32_PARTS = ("_hc.", "hc_head", "sinks", "position_bias", "e_score_correction_bias", "norm")


def kept_in_fp32(name: str) -> bool:
    """Whether the exported checkpoint stores this parameter in fp32."""
    return any(part in name for part in _FP32_PARTS)


def parameter_shapes(config: NanoConfig) -> Shapes:
    """Every parameter and buffer of the model, in file order."""
    wide = config.streams * config.hidden
    shapes: Shapes = {"model.embed_tokens.weight": (config.vocab_size, config.hidden)}
    for layer in range(len(config.layers)):
        prefix = f"model.layers.{layer}."
        shapes |= _attention_shapes(config, layer, prefix + "self_attn.")
        shapes |= _mixture_shapes(config, layer, prefix + "mlp.")
        for site in ("attn_hc.", "ffn_hc."):
            rows = 2 * config.streams + config.streams**2
            shapes[prefix + site + "fn"] = (rows, wide)
            shapes[prefix + site + "base"] = (rows,)
            shapes[prefix + site + "scale"] = (3,)
        shapes[prefix + "input_layernorm.weight"] = (config.hidden,)
        shapes[prefix + "post_attention_layernorm.weight"] = (config.hidden,)
    shapes["model.hc_head.hc_fn"] = (config.streams, wide)
    shapes["model.hc_head.hc_base"] = (config.streams,)
    shapes["model.hc_head.hc_scale"] = (1,)
    shapes["model.norm.weight"] = (config.hidden,)
    shapes["lm_head.weight"] = (config.vocab_size, config.hidden)
    return shapes


def _attention_shapes(config: NanoConfig, layer: int, prefix: str) -> Shapes:
    hidden, head_dim = config.hidden, config.head_dim
    shapes: Shapes = {
        prefix + "q_a_proj.weight": (config.q_lora, hidden),
        prefix + "q_a_norm.weight": (config.q_lora,),
        prefix + "q_b_proj.weight": (config.heads * head_dim, config.q_lora),
        prefix + "kv_proj.weight": (head_dim, hidden),
        prefix + "kv_norm.weight": (head_dim,),
        prefix + "sinks": (config.heads,),
        prefix + "o_a_proj.weight": (
            config.o_groups * config.o_lora,
            config.heads * head_dim // config.o_groups,
        ),
        prefix + "o_b_proj.weight": (hidden, config.o_groups * config.o_lora),
    }
    if config.layers[layer] != "S":
        shapes |= _compressor_shapes(config, layer, prefix + "compressor.", head_dim)
    if config.layers[layer] == "C":
        indexer = prefix + "compressor.indexer."
        shapes |= _compressor_shapes(config, layer, indexer, config.index_dim)
        rows = config.index_heads * config.index_dim
        shapes[indexer + "q_b_proj.weight"] = (rows, config.q_lora)
        shapes[indexer + "scorer.weights_proj.weight"] = (config.index_heads, hidden)
    return shapes


def _compressor_shapes(config: NanoConfig, layer: int, prefix: str, dim: int) -> Shapes:
    width = 2 * dim if config.layers[layer] == "C" else dim
    return {
        prefix + "kv_proj.weight": (width, config.hidden),
        prefix + "gate_proj.weight": (width, config.hidden),
        prefix + "position_bias": (config.rate(layer), width),
        prefix + "kv_norm.weight": (dim,),
    }


def _mixture_shapes(config: NanoConfig, layer: int, prefix: str) -> Shapes:
    hidden, inner, experts = config.hidden, config.expert_dim, config.experts
    shapes: Shapes = {prefix + "gate.weight": (experts, hidden)}
    if layer < config.hash_layers:
        shapes[prefix + "gate.tid2eid"] = (config.vocab_size, config.experts_per_token)
    else:
        shapes[prefix + "gate.e_score_correction_bias"] = (experts,)
    shapes[prefix + "experts.gate_up_proj"] = (experts, 2 * inner, hidden)
    shapes[prefix + "experts.down_proj"] = (experts, hidden, inner)
    shapes[prefix + "shared_experts.gate_proj.weight"] = (inner, hidden)
    shapes[prefix + "shared_experts.up_proj.weight"] = (inner, hidden)
    shapes[prefix + "shared_experts.down_proj.weight"] = (hidden, inner)
    return shapes


def _normal(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator)


def initial_parameters(config: NanoConfig, seed: int, draw: Draw = _normal) -> dict[str, Tensor]:
    """A seeded start, fp32 on the CPU: the same values for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _initial(name, shape, config, generator, draw)
        for name, shape in parameter_shapes(config).items()
    }


def _initial(
    name: str, shape: tuple[int, ...], config: NanoConfig, generator: torch.Generator, draw: Draw
) -> Tensor:
    if name.endswith("tid2eid"):
        rows = [torch.randperm(config.experts, generator=generator) for _ in range(shape[0])]
        return torch.stack(rows)[:, : config.experts_per_token].contiguous()
    if "norm" in name:
        return torch.ones(shape)
    if name.endswith("hc.scale"):
        return torch.full(shape, 0.3)
    if name.endswith("hc.base"):
        return _mixing_base(config.streams)
    if name.endswith("hc_scale"):
        return torch.ones(shape)
    spread = _spread(name, shape)
    return draw(shape, generator) * spread if spread else torch.zeros(shape)


def _mixing_base(streams: int) -> Tensor:
    """Streams keep to themselves at first, and are read with slightly different weights."""
    pre = torch.linspace(0.3, -0.6, streams)
    return torch.cat([pre, torch.zeros(streams), (torch.eye(streams) * 2.5).flatten()])


def _spread(name: str, shape: tuple[int, ...]) -> float:
    inward = 1 / math.sqrt(shape[-1])
    if name == "model.embed_tokens.weight":
        return 0.5
    if name.endswith("o_b_proj.weight") or "down_proj" in name:
        return 0.3 * inward
    if "scorer" in name:
        return 0.1
    if "_proj" in name:
        return inward
    if name.endswith(("hc.fn", "hc_fn", "gate.weight", "lm_head.weight")):
        return 0.02
    return 0.0
