"""Names of one tensor in the checkpoints of a DeepSeek-V4 model.

Hugging Face's own, upstream's (`layers.N.attn.wq_a.weight`), and what `save_pretrained` writes:
upstream's words behind the prefix `model.`, with `attn.norm` for the norm of the kv rows.
"""

import re
from collections.abc import Iterator

_WHOLE = {
    "model.embed_tokens.weight": ("embed.weight",),
    "lm_head.weight": ("head.weight",),
    "model.norm.weight": ("norm.weight",),
    "model.hc_head.hc_fn": ("hc_head_fn",),
    "model.hc_head.hc_base": ("hc_head_base",),
    "model.hc_head.hc_scale": ("hc_head_scale",),
}
_COMPRESSOR = {
    "kv_proj.weight": "wkv.weight",
    "gate_proj.weight": "wgate.weight",
    "position_bias": "ape",
    "kv_norm.weight": "norm.weight",
}
_LAYER = {
    "input_layernorm.weight": ("attn_norm.weight",),
    "post_attention_layernorm.weight": ("ffn_norm.weight",),
    **{
        f"{site}_hc.{part}": (f"hc_{site}_{part}",)
        for site in ("attn", "ffn")
        for part in ("fn", "base", "scale")
    },
    "self_attn.q_a_proj.weight": ("attn.wq_a.weight",),
    "self_attn.q_a_norm.weight": ("attn.q_norm.weight",),
    "self_attn.q_b_proj.weight": ("attn.wq_b.weight",),
    "self_attn.kv_proj.weight": ("attn.wkv.weight",),
    "self_attn.kv_norm.weight": ("attn.kv_norm.weight", "attn.norm.weight"),
    "self_attn.o_a_proj.weight": ("attn.wo_a.weight",),
    "self_attn.o_b_proj.weight": ("attn.wo_b.weight",),
    "self_attn.sinks": ("attn.attn_sink",),
    **{
        f"self_attn.compressor.{ours}": (f"attn.compressor.{theirs}",)
        for ours, theirs in _COMPRESSOR.items()
    },
    **{
        f"self_attn.compressor.indexer.{ours}": (f"attn.indexer.compressor.{theirs}",)
        for ours, theirs in _COMPRESSOR.items()
    },
    "self_attn.compressor.indexer.q_b_proj.weight": ("attn.indexer.wq_b.weight",),
    "self_attn.compressor.indexer.scorer.weights_proj.weight": (
        "attn.indexer.weights_proj.weight",
    ),
    "mlp.gate.weight": ("ffn.gate.weight",),
    "mlp.gate.e_score_correction_bias": ("ffn.gate.bias",),
    "mlp.gate.tid2eid": ("ffn.gate.tid2eid",),
}
_PARTS = {"gate": "w1", "down": "w2", "up": "w3"}
_OF_LAYER = re.compile(r"model\.layers\.(\d+)\.(.*)")
_OF_EXPERT = re.compile(r"mlp\.(experts\.\d+|shared_experts)\.(gate|up|down)_proj\.weight")


def names_of(name: str) -> Iterator[str]:
    """Every name under which a tensor of this Hugging Face name may lie, that one first."""
    yield name
    for other in _upstream(name):
        yield other
        yield f"model.{other}"


def scales_of(name: str) -> dict[str, str]:
    """Siblings of a stored tensor that may hold its scales: kind -> name."""
    stem = name.removesuffix(".weight")
    return {
        "scale": f"{stem}.scale",
        "weight_scale_inv": f"{stem}.weight_scale_inv",
        "weight_scale": f"{stem}.weight_scale",
        "weight_scale_2": f"{stem}.weight_scale_2",
    }


def _upstream(name: str) -> tuple[str, ...]:
    if name in _WHOLE:
        return _WHOLE[name]
    layer = _OF_LAYER.fullmatch(name)
    if layer is None:
        return ()
    number, rest = layer.groups()
    expert = _OF_EXPERT.fullmatch(rest)
    if expert:
        return (f"layers.{number}.ffn.{expert[1]}.{_PARTS[expert[2]]}.weight",)
    return tuple(f"layers.{number}.{other}" for other in _LAYER.get(rest, ()))
