"""Two checkpoints, and what `transformers` computes for prompts on them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

NANO = Path(__file__).parents[2] / "engine" / "checkpoints" / "nano"
SCRIPT = Path(__file__).with_name("transformers_activations.py")
LENGTHS = (61, 300, 700)
SELECTIONS = ("index_topk", "moe_topk")

# All kinds of layers, both kinds of routing, two different epsilons, and no size of nano's.
SMALL = {
    "model_type": "deepseek_v4",
    "architectures": ["DeepseekV4ForCausalLM"],
    "vocab_size": 157,
    "hidden_size": 80,
    "num_hidden_layers": 5,
    "layer_types": [
        "compressed_sparse_attention",
        "heavily_compressed_attention",
        "sliding_attention",
        "heavily_compressed_attention",
        "compressed_sparse_attention",
    ],
    "mlp_layer_types": ["hash_moe", "moe", "moe", "hash_moe", "moe"],
    "compress_rates": {"compressed_sparse_attention": 4, "heavily_compressed_attention": 8},
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 24,
    "qk_rope_head_dim": 12,
    "partial_rotary_factor": 0.5,
    "q_lora_rank": 32,
    "o_groups": 2,
    "o_lora_rank": 20,
    "moe_intermediate_size": 48,
    "n_routed_experts": 7,
    "num_experts_per_tok": 3,
    "n_shared_experts": 1,
    "routed_scaling_factor": 1.7,
    "scoring_func": "sqrtsoftplus",
    "norm_topk_prob": True,
    "swiglu_limit": 0.9,
    "index_n_heads": 32,
    "index_head_dim": 16,
    "index_topk": 9,
    "sliding_window": 19,
    "hc_mult": 2,
    "hc_sinkhorn_iters": 3,
    "hc_eps": 2e-3,
    "rms_norm_eps": 3e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "compress_rope_theta": 160000.0,
    "rope_parameters": {
        "main": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5},
        "compress": {
            "rope_type": "yarn",
            "rope_theta": 160000.0,
            "factor": 16.0,
            "original_max_position_embeddings": 2048,
            "beta_fast": 32,
            "beta_slow": 1,
            "attention_factor": 1.0,
            "partial_rotary_factor": 0.5,
        },
    },
    "bos_token_id": 0,
    "eos_token_id": 1,
    "tie_word_embeddings": False,
    "attention_bias": False,
    "num_nextn_predict_layers": 0,
}


class Golden:
    """Prompts, and what `transformers` computed for them."""

    def __init__(self, checkpoint: Path, vocab: int, folder: Path, seed: tuple[str, ...]) -> None:
        self.checkpoint = checkpoint
        generator = torch.Generator().manual_seed(7)
        self.prompts = {n: torch.randint(3, vocab, (n,), generator=generator) for n in LENGTHS}
        save_file({str(n): ids for n, ids in self.prompts.items()}, folder / "in.safetensors")
        # An empty environment: no PYTHONPATH that could lead back into the checkout.
        done = subprocess.run(
            [sys.executable, "-P", SCRIPT, checkpoint, "in.safetensors", "out.safetensors", *seed],
            cwd=folder,
            env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        self.tensors = load_file(folder / "out.safetensors")

    def activations(self, length: int) -> dict[str, torch.Tensor]:
        prefix = f"{length}/"
        return {
            key.removeprefix(prefix): rows
            for key, rows in self.tensors.items()
            if key.startswith(prefix)
        }


@pytest.fixture(scope="session")
def nano_checkpoint() -> Path:
    return NANO


@pytest.fixture(scope="session")
def small_golden(tmp_path_factory) -> Golden:
    folder = tmp_path_factory.mktemp("small")
    (folder / "config.json").write_text(json.dumps(SMALL))
    return Golden(folder, SMALL["vocab_size"], tmp_path_factory.mktemp("golden"), ("11",))


@pytest.fixture(scope="session")
def nano_golden(tmp_path_factory) -> Golden:
    vocab = json.loads((NANO / "config.json").read_text())["vocab_size"]
    return Golden(NANO, vocab, tmp_path_factory.mktemp("golden"), ())


@pytest.fixture(autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)
