"""Greedy answers of `transformers` in a process of its own; run by nano_in_transformers.py.

    python -P transformers_greedy.py FOLDER PROMPTS.json OUT.json fp32|bf16

PROMPTS.json is a list of [ids, most new tokens]; OUT.json a list of the new ids, EOS included.
"""

import importlib.util
import json
import sys
from pathlib import Path

for ours in ("kernels", "engine"):
    if importlib.util.find_spec(ours) is not None:
        sys.exit(f"{ours} of the checkout can be imported here, so this is no independent process")

import torch  # noqa: E402
from transformers import DeepseekV4ForCausalLM  # noqa: E402

EOS_ID, PAD_ID = 1, 2


def main() -> None:
    folder, prompts_path, out_path, precision = sys.argv[1:]
    torch.set_num_threads(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    model = DeepseekV4ForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    answers = []
    for ids, most in json.loads(Path(prompts_path).read_text(encoding="utf-8")):
        with torch.no_grad():
            out = model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=most,
                do_sample=False,
                eos_token_id=EOS_ID,
                pad_token_id=PAD_ID,
            )
        answers.append(out[0, len(ids) :].tolist())
    Path(out_path).write_text(json.dumps(answers), encoding="utf-8")


if __name__ == "__main__":
    main()
