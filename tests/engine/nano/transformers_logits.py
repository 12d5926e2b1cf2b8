"""Run as a script, in a process of its own: logits of `transformers` for a checkpoint folder.

python transformers_logits.py FOLDER IDS.json OUT.json [--topk N]
"""

import json
import sys
from pathlib import Path

import torch
from transformers import DeepseekV4ForCausalLM


def main() -> None:
    folder, ids_path, out_path, topk = sys.argv[1:5]
    torch.set_num_threads(1)
    model = DeepseekV4ForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    for module in model.modules():
        if hasattr(module, "index_topk"):
            module.index_topk = int(topk)
    ids = torch.tensor(json.loads(Path(ids_path).read_text()))
    with torch.no_grad():
        logits = model(ids, use_cache=False).logits
    torch.save(logits, out_path)


if __name__ == "__main__":
    main()
