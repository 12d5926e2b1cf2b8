"""Decode and prefill speed of `transformers`; run by engine_speed.py in a process of its own.

Takes the shapes as one JSON argument and prints one JSON line.
"""

import importlib.util
import json
import sys
import time

for ours in ("kernels", "engine"):
    if importlib.util.find_spec(ours) is not None:
        sys.exit(f"{ours} of the checkout can be imported here, so this is no independent process")

import torch  # noqa: E402
from transformers import DeepseekV4ForCausalLM, DynamicCache  # noqa: E402


def main() -> None:
    shapes = json.loads(sys.argv[1])
    torch.set_num_threads(shapes["threads"])
    model = DeepseekV4ForCausalLM.from_pretrained(
        shapes["checkpoint"], dtype=torch.float32, attn_implementation="eager"
    ).eval()
    repeats = range(shapes["repeats"])
    with torch.no_grad():
        run(model, 1, 64, 1)  # first calls allocate
        prefill = [
            {"tokens": n, "tokens_per_s": [n / run(model, 1, n, 0)[0] for _ in repeats]}
            for n in shapes["prefills"]
        ]
        tokens, prompt = shapes["decode_tokens"], shapes["decode_prompt_tokens"]
        decode = [
            {
                "batch": b,
                "tokens_per_s": [b * tokens / run(model, b, prompt, tokens)[1] for _ in repeats],
            }
            for b in shapes["batches"]
        ]
    print(json.dumps({"prefill": prefill, "decode": decode}))


def run(model, batch: int, prompt_tokens: int, decode_tokens: int) -> tuple[float, float]:  # noqa: ANN001
    """Seconds to read equal-length prompts, and seconds for that many greedy steps after."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, model.config.vocab_size, (batch, prompt_tokens), generator=generator)
    cache = DynamicCache(config=model.config)
    began = time.perf_counter()
    logits = model(ids, cache=cache, use_cache=True, logits_to_keep=1).logits
    read = time.perf_counter()
    for _ in range(decode_tokens):
        ids = logits[:, -1].argmax(dim=-1, keepdim=True)
        logits = model(ids, cache=cache, use_cache=True).logits
    return read - began, time.perf_counter() - read


if __name__ == "__main__":
    main()
