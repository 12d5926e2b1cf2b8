"""Logits and selections of `transformers`, the independent implementation, in its own process.

Run with `python -P` outside the checkout: `transformers` must never see this project's `kernels`.
Usage: python -P transformers_logits.py CHECKPOINT IN.safetensors OUT.safetensors [three more ...]
IN holds one int64 vector of token ids a name; OUT, for each, `NAME/logits` fp32 [T, V],
`NAME/L{n}.index_topk` and `NAME/L{n}.moe_topk` int64 [T, K].
"""

import importlib.util
import sys

for ours in ("kernels", "engine"):
    if importlib.util.find_spec(ours) is not None:
        sys.exit(f"{ours} of the checkout can be imported here, so this is no independent process")

import torch  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import DeepseekV4ForCausalLM  # noqa: E402


def main() -> None:
    torch.set_num_threads(1)
    words = sys.argv[1:]
    for at in range(0, len(words), 3):
        run(*words[at : at + 3])


def run(checkpoint: str, source: str, target: str) -> None:
    model = DeepseekV4ForCausalLM.from_pretrained(
        checkpoint, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    kept: dict[str, torch.Tensor] = {}
    for layer, block in enumerate(model.model.layers):
        indexer = getattr(getattr(block.self_attn, "compressor", None), "indexer", None)
        if indexer is not None:
            indexer.register_forward_hook(_keep(kept, f"L{layer}.index_topk"))
        block.mlp.gate.register_forward_hook(_keep(kept, f"L{layer}.moe_topk"))
    results: dict[str, torch.Tensor] = {}
    for name, token_ids in load_file(source).items():
        kept.clear()
        with torch.no_grad():
            logits = model(token_ids[None], use_cache=False).logits[0]
        results[f"{name}/logits"] = logits.float().contiguous()
        results.update({f"{name}/{key}": value for key, value in kept.items()})
    save_file(results, target)


def _keep(kept: dict[str, torch.Tensor], name: str):
    def hook(module, args, output) -> None:
        selected = output[-1] if isinstance(output, tuple) else output[0]
        kept[name] = selected.clone().contiguous()

    return hook


if __name__ == "__main__":
    main()
