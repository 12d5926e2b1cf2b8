"""Run as a script, in a process of its own: greedy answers of `transformers`, with its cache.

python transformers_greedy.py FOLDER PROMPTS.json OUT.json [fp32|bf16]
PROMPTS.json is a list of [ids, most new tokens]; OUT.json a list of the new ids, EOS included.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import DeepseekV4ForCausalLM

EOS_ID = 1


def main() -> None:
    folder, prompts_path, out_path, precision = sys.argv[1:5]
    torch.set_num_threads(1)
    dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[precision]
    model = DeepseekV4ForCausalLM.from_pretrained(folder, dtype=dtype).eval()
    prompts = json.loads(Path(prompts_path).read_text())
    answers = []
    for ids, most in prompts:
        with torch.no_grad():
            out = model.generate(
                torch.tensor([ids]),
                attention_mask=torch.ones(1, len(ids), dtype=torch.long),
                max_new_tokens=most,
                do_sample=False,
                eos_token_id=EOS_ID,
                pad_token_id=2,
            )
        answers.append(out[0, len(ids) :].tolist())
    Path(out_path).write_text(json.dumps(answers))


if __name__ == "__main__":
    main()
