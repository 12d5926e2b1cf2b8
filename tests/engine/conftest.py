"""Engines and checkpoints for the tests of the core, and a driver below the scheduler."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from engine.config import EngineConfig
from engine.core import Engine
from engine.runner import Slice
from engine.sequence import EngineRequest, SamplingParams, Sequence

NANO = Path(__file__).parents[2] / "engine" / "checkpoints" / "nano"

TINY = {
    "model_type": "deepseek_v4",
    "architectures": ["DeepseekV4ForCausalLM"],
    "vocab_size": 199,
    "hidden_size": 96,
    "num_hidden_layers": 5,
    "layer_types": [
        "heavily_compressed_attention",
        "compressed_sparse_attention",
        "sliding_attention",
        "compressed_sparse_attention",
        "heavily_compressed_attention",
    ],
    "mlp_layer_types": ["hash_moe", "moe", "hash_moe", "moe", "moe"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 16},
    "num_attention_heads": 6,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "qk_rope_head_dim": 8,
    "partial_rotary_factor": 0.25,
    "q_lora_rank": 48,
    "o_groups": 3,
    "o_lora_rank": 16,
    "moe_intermediate_size": 40,
    "n_routed_experts": 6,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "routed_scaling_factor": 2.5,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "swiglu_limit": 1.5,
    "index_n_heads": 32,
    "index_head_dim": 16,
    "index_topk": 12,
    "sliding_window": 24,
    "hc_mult": 3,
    "hc_sinkhorn_iters": 7,
    "hc_eps": 1e-3,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "rope_parameters": {
        "main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25},
        "compress": {
            "rope_type": "yarn",
            "rope_theta": 160000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 4096,
            "beta_fast": 32,
            "beta_slow": 1,
            "attention_factor": 1.0,
            "partial_rotary_factor": 0.25,
        },
    },
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "num_nextn_predict_layers": 0,
}


def _tiny_tensors(config: dict, seed: int) -> dict[str, torch.Tensor]:
    """Every parameter random: with a library's zero initialisation half a port can be wrong."""
    g = torch.Generator().manual_seed(seed)
    tensors: dict[str, torch.Tensor] = {}

    def normal(name: str, *shape: int, std: float = 1.0, mean: float = 0.0) -> None:
        tensors[name] = torch.randn(*shape, generator=g) * std + mean

    def linear(name: str, rows: int, columns: int) -> None:
        normal(name, rows, columns, std=columns**-0.5)

    c, h, n = config, config["hidden_size"], config["hc_mult"]
    d, di, i = c["head_dim"], c["index_head_dim"], c["moe_intermediate_size"]
    heads, experts = c["num_attention_heads"] * d, c["n_routed_experts"]
    normal("model.embed_tokens.weight", c["vocab_size"], h)
    linear("lm_head.weight", c["vocab_size"], h)
    normal("model.norm.weight", h, std=0.2, mean=1.0)
    linear("model.hc_head.hc_fn", n, n * h)
    normal("model.hc_head.hc_base", n)
    normal("model.hc_head.hc_scale", 1, std=0.3, mean=1.0)

    def compressor(prefix: str, width: int, rate: int) -> None:
        rows = 2 * width if rate == 4 else width
        linear(f"{prefix}.kv_proj.weight", rows, h)
        linear(f"{prefix}.gate_proj.weight", rows, h)
        normal(f"{prefix}.position_bias", rate, rows)
        normal(f"{prefix}.kv_norm.weight", width, std=0.2, mean=1.0)

    for layer, kind in enumerate(c["layer_types"]):
        p, a = f"model.layers.{layer}", f"model.layers.{layer}.self_attn"
        for site in ("attn_hc", "ffn_hc"):
            linear(f"{p}.{site}.fn", (2 + n) * n, n * h)
            normal(f"{p}.{site}.base", (2 + n) * n)
            normal(f"{p}.{site}.scale", 3, std=0.3, mean=1.0)
        normal(f"{p}.input_layernorm.weight", h, std=0.2, mean=1.0)
        normal(f"{p}.post_attention_layernorm.weight", h, std=0.2, mean=1.0)
        linear(f"{a}.q_a_proj.weight", c["q_lora_rank"], h)
        normal(f"{a}.q_a_norm.weight", c["q_lora_rank"], std=0.2, mean=1.0)
        linear(f"{a}.q_b_proj.weight", heads, c["q_lora_rank"])
        linear(f"{a}.kv_proj.weight", d, h)
        normal(f"{a}.kv_norm.weight", d, std=0.2, mean=1.0)
        linear(f"{a}.o_a_proj.weight", c["o_groups"] * c["o_lora_rank"], heads // c["o_groups"])
        linear(f"{a}.o_b_proj.weight", h, c["o_groups"] * c["o_lora_rank"])
        normal(f"{a}.sinks", c["num_attention_heads"])
        if kind != "sliding_attention":
            compressor(f"{a}.compressor", d, c["compress_rates"][kind])
        if kind == "compressed_sparse_attention":
            indexer = f"{a}.compressor.indexer"
            compressor(indexer, di, 4)
            linear(f"{indexer}.q_b_proj.weight", c["index_n_heads"] * di, c["q_lora_rank"])
            linear(f"{indexer}.scorer.weights_proj.weight", c["index_n_heads"], h)
        linear(f"{p}.mlp.gate.weight", experts, h)
        if c["mlp_layer_types"][layer] == "hash_moe":
            order = torch.rand(c["vocab_size"], experts, generator=g).argsort(dim=-1)
            chosen = order[:, : c["num_experts_per_tok"]]
            tensors[f"{p}.mlp.gate.tid2eid"] = chosen.contiguous()
        else:
            normal(f"{p}.mlp.gate.e_score_correction_bias", experts, std=0.3)
        normal(f"{p}.mlp.experts.gate_up_proj", experts, 2 * i, h, std=2 * h**-0.5)
        normal(f"{p}.mlp.experts.down_proj", experts, h, i, std=i**-0.5)
        for name in ("gate_proj", "up_proj"):
            normal(f"{p}.mlp.shared_experts.{name}.weight", i, h, std=2 * h**-0.5)
        linear(f"{p}.mlp.shared_experts.down_proj.weight", h, i)
    return tensors


@pytest.fixture(scope="session")
def nano_checkpoint() -> Path:
    return NANO


@pytest.fixture(scope="session")
def tiny_checkpoint(tmp_path_factory) -> Path:
    """A small model with every kind of layer, distinct epsilons and random parameters."""
    folder = tmp_path_factory.mktemp("tiny")
    (folder / "config.json").write_text(json.dumps(TINY))
    save_file(_tiny_tensors(TINY, seed=5), folder / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="session")
def make_engine(tiny_checkpoint) -> Callable[..., Engine]:
    """Builds an engine on the tiny checkpoint, or on `model`, with any flags."""

    def build(**flags) -> Engine:
        flags.setdefault("model", str(tiny_checkpoint))
        flags.setdefault("max_total_tokens", 8192)
        return Engine(EngineConfig(**flags))

    return build


class Driver:
    """Runs sequences through pages and model without the scheduler, keeping all logits."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.slices: list[tuple[Sequence, int, int]] = []
        """Of the batch at work: sequence, first position, number of tokens."""

    def open(self, token_ids: list[int], **sampling) -> Sequence:
        request = EngineRequest(
            request_id=f"driven-{id(token_ids)}",
            prompt_token_ids=list(token_ids),
            sampling=SamplingParams(max_tokens=0, **sampling),
            on_output=lambda output: None,
        )
        sequence = self.engine.scheduler.make_sequence(request)
        assert self.engine.ownership.admit(sequence, reserve_pages=0)
        return sequence

    def close(self, sequence: Sequence) -> None:
        self.engine.ownership.release(sequence, "stop")

    def step(self, *parts: tuple[Sequence, int]) -> list[torch.Tensor]:
        """Compute the next tokens of each sequence in one batch; return logits [n, V] of each."""
        slices = [Slice(sequence, count) for sequence, count in parts]
        self.slices = [(sequence, sequence.num_computed, count) for sequence, count in parts]
        batch = self.engine.runner.build_batch(slices)
        batch.validate(pages=self.engine.pools.num_pages, vocab=self.engine.architecture.vocab_size)
        hidden = self.engine.model.forward(batch)
        logits = self.engine.model.logits(hidden)
        for sequence, count in parts:
            sequence.num_computed += count
        return list(logits.split([count for _, count in parts]))

    def logits(self, token_ids: list[int], *, chunk: int | None = None) -> torch.Tensor:
        """Logits of every token that was computed, in chunks; the sequence is closed after."""
        sequence = self.open(token_ids)
        rows = []
        while sequence.num_uncomputed:
            count = min(chunk or len(token_ids), sequence.num_uncomputed)
            rows += self.step((sequence, count))
        self.close(sequence)
        return torch.cat(rows)


def poison_freed_pages(engine: Engine) -> None:
    """From now on, whatever reads a page that it does not own computes with NaN."""
    free = engine.pools.free

    def poison(pages: list[int]) -> None:
        for tensor in engine.pools.page_tensors():
            if tensor.is_floating_point():
                tensor[list(pages)] = float("nan")

    def poisoning_free(pages) -> None:
        pages = list(pages)
        poison(pages)
        free(pages)

    poison(engine.pools.free_pages())
    engine.pools.free = poisoning_free


@pytest.fixture(scope="session")
def poison() -> Callable[[Engine], None]:
    return poison_freed_pages


@pytest.fixture
def driver() -> Callable[[Engine], Driver]:
    return Driver


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
