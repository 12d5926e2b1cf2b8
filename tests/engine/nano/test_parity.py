import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from engine.nano.config import TINY, NanoConfig
from engine.nano.export import export_checkpoint, read_tensors
from engine.nano.mode import Mode
from engine.nano.parameters import initial_parameters
from engine.nano.twin import Twin
from engine.nano.weights import Weights

SCRIPT = Path(__file__).with_name("transformers_logits.py")
# both compressed kinds twice, so that their order cannot hide a mistake
LAYERS = "SHCHC"
CONFIG = NanoConfig(
    layers=LAYERS,
    hidden=64,
    heads=2,
    head_dim=64,
    rope_dim=16,
    q_lora=32,
    o_lora=32,
    index_dim=32,
    experts=4,
    expert_dim=32,
)
LENGTH_TOKENS = 384


def shaken(config: NanoConfig) -> dict[str, torch.Tensor]:
    """A start in which no parameter is a zero or a one that would hide its absence."""
    values = initial_parameters(config, seed=3)
    generator = torch.Generator().manual_seed(4)
    for name, value in values.items():
        if value.is_floating_point() and value.dim() <= 2 and "proj" not in name:
            values[name] = value + torch.randn(value.shape, generator=generator) * 0.2
    return values


def logits_of_transformers(folder: Path, ids: torch.Tensor, topk: int) -> torch.Tensor:
    (folder / "ids.json").write_text(json.dumps(ids.tolist()))
    command = [sys.executable, str(SCRIPT), str(folder), str(folder / "ids.json")]
    subprocess.run(
        [*command, str(folder / "logits.pt"), str(topk)],
        check=True,
        cwd=folder,
        timeout=300,
        capture_output=True,
    )
    return torch.load(folder / "logits.pt")


@pytest.mark.parametrize("topk", [8, 10_000])
def test_the_trainers_forward_is_that_of_transformers(tmp_path, topk):
    export_checkpoint(tmp_path, CONFIG, shaken(CONFIG), exact=True)
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(10, CONFIG.vocab_size, (2, LENGTH_TOKENS), generator=generator)
    expected = logits_of_transformers(tmp_path, ids, topk)

    twin = Twin(Weights(CONFIG, read_tensors(tmp_path), torch.float32))
    with torch.no_grad():
        hidden, _ = twin.hidden(ids, Mode(topk=topk))
        found = twin.logits(hidden)

    assert ((found - expected).norm() / expected.norm()).item() < 1e-5


def test_the_rounded_file_of_the_tiny_preset_loads_in_transformers(tmp_path):
    export_checkpoint(tmp_path, TINY, initial_parameters(TINY, seed=1))
    ids = torch.arange(10, 138)[None]
    expected = logits_of_transformers(tmp_path, ids, TINY.index_topk)

    twin = Twin(Weights(TINY, read_tensors(tmp_path), torch.float32))
    with torch.no_grad():
        found = twin.logits(twin.hidden(ids, Mode(topk=TINY.index_topk))[0])

    assert torch.allclose(found, expected, atol=1e-4)
