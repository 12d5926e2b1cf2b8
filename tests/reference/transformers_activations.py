"""Activations of `transformers`, the independent implementation, in its own process.

Run with `python -P` outside the checkout: `transformers` must never see this project's `kernels`.
Usage: python -P transformers_activations.py CHECKPOINT IN.safetensors OUT.safetensors [SEED]
IN holds one int64 vector of token ids a name; OUT, for each, `NAME/KEY` with the keys of an
activation dump. With SEED the CHECKPOINT holds config.json alone: weights are drawn and written.
"""

import importlib.util
import sys
from pathlib import Path

for ours in ("kernels", "engine", "reference"):
    if importlib.util.find_spec(ours) is not None:
        sys.exit(f"{ours} of the checkout can be imported here, so this is no independent process")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM  # noqa: E402


def main() -> None:
    checkpoint, source, target, *seed = sys.argv[1:]
    torch.set_num_threads(1)
    if seed:
        draw(Path(checkpoint), int(seed[0]))
    model = DeepseekV4ForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    kept: dict[str, torch.Tensor] = {}
    watch(model, kept)
    results: dict[str, torch.Tensor] = {}
    for name, token_ids in load_file(source).items():
        kept.clear()
        with torch.no_grad():
            kept["logits"] = model(token_ids[None], use_cache=False).logits[0]
        results.update({f"{name}/{key}": rows.contiguous() for key, rows in kept.items()})
    save_file(results, target)


def draw(checkpoint: Path, seed: int) -> None:
    """Every parameter random: by default sinks, biases and tables are zero and could be lost."""
    config = DeepseekV4Config.from_pretrained(checkpoint)
    model = DeepseekV4ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, tensor in model.state_dict().items():
        noise = torch.randn(tensor.shape, generator=generator)
        if name.endswith("tid2eid"):
            order = torch.rand(len(tensor), config.n_routed_experts, generator=generator)
            tensors[name] = order.argsort(dim=-1)[:, : tensor.shape[1]].contiguous()
        elif name.endswith(("norm.weight", "layernorm.weight", ".scale", "hc_scale")):
            tensors[name] = 1 + 0.3 * noise
        elif tensor.dim() == 1 or name.endswith("position_bias") or "embed" in name:
            tensors[name] = noise
        else:
            tensors[name] = noise * 1.5 * tensor.shape[-1] ** -0.5
    save_file(tensors, checkpoint / "model.safetensors", metadata={"format": "pt"})


def watch(model, kept: dict[str, torch.Tensor]) -> None:
    def output(name: str):
        def hook(module, args, result) -> None:
            rows = result[0] if isinstance(result, tuple) else result
            kept[name] = rows.reshape(-1, rows.shape[-1]).clone()

        return hook

    def last_output(name: str):
        def hook(module, args, result) -> None:
            rows = result[-1] if isinstance(result, tuple) else result
            kept[name] = rows.reshape(-1, rows.shape[-1]).int()

        return hook

    def entry(name: str):
        def hook(module, args, kwargs) -> None:
            rows = args[0] if args else kwargs["hidden_states"]
            kept[name] = rows[0].clone()

        return hook

    model.model.embed_tokens.register_forward_hook(output("embed"))
    for n, block in enumerate(model.model.layers):
        block.self_attn.register_forward_pre_hook(entry(f"L{n}.attn_in"), with_kwargs=True)
        block.self_attn.register_forward_hook(output(f"L{n}.attn_out"))
        block.mlp.register_forward_hook(output(f"L{n}.ffn_out"))
        block.mlp.gate.register_forward_hook(last_output(f"L{n}.moe_topk"))
        indexer = getattr(getattr(block.self_attn, "compressor", None), "indexer", None)
        if indexer is not None:
            indexer.register_forward_hook(last_output(f"L{n}.index_topk"))


if __name__ == "__main__":
    main()
