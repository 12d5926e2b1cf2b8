"""The shapes that this package trains, and the config.json that describes them to others."""

import math
from dataclasses import dataclass
from typing import Any

LAYER_TYPES = {
    "S": "sliding_attention",
    "C": "compressed_sparse_attention",
    "H": "heavily_compressed_attention",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NanoConfig:
    """A small DeepSeek-V4. `layers` spells one letter a layer: S(liding), C(SA), H(CA).

    The one CSA layer is the only exact reader of far text, so a fault of its index is felt at once.
    The HCA layer lies *before* it: which section a line belongs to reaches the line only through
    the HCA entries, so a question about one section of several fails when they are damaged.
    """

    layers: str = "SSHCS"
    vocab_size: int = 1280
    hidden: int = 256
    heads: int = 4
    head_dim: int = 128
    rope_dim: int = 32
    q_lora: int = 128
    o_groups: int = 2
    o_lora: int = 64
    window: int = 64
    csa_rate: int = 4
    hca_rate: int = 64
    index_heads: int = 16
    index_dim: int = 64
    index_topk: int = 32
    experts: int = 8
    experts_per_token: int = 2
    expert_dim: int = 96
    hash_layers: int = 1
    routed_scaling: float = 1.5
    swiglu_limit: float = 10.0
    streams: int = 4
    sinkhorn_iterations: int = 20
    # Two different values, so that an engine which swaps them computes something else.
    rms_eps: float = 1e-6
    hc_eps: float = 1e-4
    rope_theta: float = 10_000.0
    compress_theta: float = 160_000.0
    yarn_factor: float = 16.0
    # Small against the context, so that an engine without YaRN reads other angles from the start.
    yarn_original: int = 2048
    max_position: int = 32_768

    def rate(self, layer: int) -> int:
        """Tokens of one compressed entry of that layer; 0 for a sliding layer."""
        return {"S": 0, "C": self.csa_rate, "H": self.hca_rate}[self.layers[layer]]

    def frequencies(self, *, compressed: bool) -> list[float]:
        """Rotary frequencies of a sliding layer, or (with YaRN) of a compressed one."""
        half = self.rope_dim // 2
        theta = self.compress_theta if compressed else self.rope_theta
        plain = [theta ** (-2 * i / self.rope_dim) for i in range(half)]
        if not compressed:
            return plain
        low = max(math.floor(self._turns_to_dim(32.0)), 0)
        high: float = min(math.ceil(self._turns_to_dim(1.0)), self.rope_dim - 1)
        high = high + 0.001 if high == low else high
        ramp = [min(max((i - low) / (high - low), 0.0), 1.0) for i in range(half)]
        return [f / self.yarn_factor * r + f * (1 - r) for f, r in zip(plain, ramp, strict=True)]

    def _turns_to_dim(self, turns: float) -> float:
        span = self.yarn_original / (2 * math.pi * turns)
        return self.rope_dim * math.log(span) / (2 * math.log(self.compress_theta))

    def to_json(self) -> dict[str, Any]:
        """config.json as `transformers` reads it."""
        share = self.rope_dim / self.head_dim
        count = len(self.layers)
        return {
            "architectures": ["DeepseekV4ForCausalLM"],
            "attention_bias": False,
            "attention_dropout": 0.0,
            "bos_token_id": 0,
            "compress_rates": {LAYER_TYPES["C"]: self.csa_rate, LAYER_TYPES["H"]: self.hca_rate},
            "compress_rope_theta": self.compress_theta,
            "eos_token_id": 1,
            "hc_eps": self.hc_eps,
            "hc_mult": self.streams,
            "hc_sinkhorn_iters": self.sinkhorn_iterations,
            "head_dim": self.head_dim,
            "hidden_act": "silu",
            "hidden_size": self.hidden,
            "index_head_dim": self.index_dim,
            "index_n_heads": self.index_heads,
            "index_topk": self.index_topk,
            "initializer_range": 0.02,
            "layer_types": [LAYER_TYPES[letter] for letter in self.layers],
            "max_position_embeddings": self.max_position,
            "mlp_bias": False,
            "mlp_layer_types": ["hash_moe"] * self.hash_layers
            + ["moe"] * (count - self.hash_layers),
            "model_type": "deepseek_v4",
            "moe_intermediate_size": self.expert_dim,
            "n_routed_experts": self.experts,
            "n_shared_experts": 1,
            "norm_topk_prob": True,
            "num_attention_heads": self.heads,
            "num_experts_per_tok": self.experts_per_token,
            "num_hidden_layers": count,
            "num_key_value_heads": 1,
            "num_nextn_predict_layers": 0,
            "o_groups": self.o_groups,
            "o_lora_rank": self.o_lora,
            "output_router_logits": False,
            "pad_token_id": 2,
            "partial_rotary_factor": share,
            "q_lora_rank": self.q_lora,
            "qk_rope_head_dim": self.rope_dim,
            "rms_norm_eps": self.rms_eps,
            "rope_parameters": {
                "compress": {
                    "attention_factor": 1.0,
                    "beta_fast": 32,
                    "beta_slow": 1,
                    "factor": self.yarn_factor,
                    "original_max_position_embeddings": self.yarn_original,
                    "partial_rotary_factor": share,
                    "rope_theta": self.compress_theta,
                    "rope_type": "yarn",
                },
                "main": {
                    "partial_rotary_factor": share,
                    "rope_theta": self.rope_theta,
                    "rope_type": "default",
                },
            },
            "rope_theta": self.rope_theta,
            "routed_scaling_factor": self.routed_scaling,
            "router_aux_loss_coef": 0.001,
            "router_jitter_noise": 0.0,
            "scoring_func": "sqrtsoftplus",
            "sliding_window": self.window,
            "swiglu_limit": self.swiglu_limit,
            "tie_word_embeddings": False,
            "torch_dtype": "bfloat16",
            "use_cache": True,
            "vocab_size": self.vocab_size,
        }


NANO = NanoConfig()
TINY = NanoConfig(
    hidden=64,
    heads=2,
    head_dim=64,
    rope_dim=16,
    q_lora=32,
    o_lora=32,
    index_dim=32,
    index_topk=8,
    experts=4,
    expert_dim=32,
)
PRESETS = {"nano": NANO, "tiny": TINY}
