import json

import pytest
import torch

from engine.architecture import read_architecture
from engine.nano.export import WEIGHTS_FILE, read_tensors
from engine.nano.mode import Mode
from engine.nano.tiny import FOLDER, SHAPE, write_tiny
from engine.nano.tokens import TOKENIZER_FILE
from engine.nano.twin import Twin
from engine.nano.weights import Weights
from engine.tokenizer import Tokenizer

MOST_BYTES = 2_000_000
# four windows: more than index_topk compressed entries, and several heavily compressed ones
LENGTH_TOKENS = 128
IDS = torch.randint(10, 266, (1, LENGTH_TOKENS), generator=torch.Generator().manual_seed(8))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return write_tiny(tmp_path_factory.mktemp("tiny")).parent


def test_the_command_writes_the_committed_bytes(written):
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {path.name for path in written.iterdir()}
    for name in names - {TOKENIZER_FILE}:
        assert (written / name).read_bytes() == (FOLDER / name).read_bytes(), name
    # the layout of this file is the library's
    tokenizers = [json.loads((f / TOKENIZER_FILE).read_text()) for f in (written, FOLDER)]
    assert tokenizers[0] == tokenizers[1]
    assert sum(path.stat().st_size for path in FOLDER.iterdir()) <= MOST_BYTES


def test_another_seed_is_another_model(tmp_path):
    write_tiny(tmp_path, seed=22)
    assert (tmp_path / WEIGHTS_FILE).read_bytes() != (FOLDER / WEIGHTS_FILE).read_bytes()


def test_it_has_every_kind_of_layer_and_two_epsilons():
    read = read_architecture(FOLDER)
    assert len(set(read.layer_kinds)) == 3
    assert set(read.hash_layers) == {True, False}
    assert read.rms_norm_eps != read.hc_eps
    assert read.csa_rate * (read.index_topk + 1) < LENGTH_TOKENS


def test_every_text_comes_back_byte_by_byte():
    tokenizer = Tokenizer(FOLDER)
    text = "<｜User｜>Zoë paid 12 €\x00\n\n for ☃ and 🙂.</think>"
    ids = tokenizer.encode(text)
    assert len(ids) == len(text.encode()) - len("<｜User｜>".encode()) - len(b"</think>") + 2
    assert max(ids) < SHAPE.vocab_size
    assert tokenizer.decode(ids) == text


def logits(tensors):
    twin = Twin(Weights(SHAPE, tensors, torch.float32))
    with torch.no_grad():
        return twin.logits(twin.hidden(IDS, Mode(topk=SHAPE.index_topk))[0])


def test_no_parameter_can_be_lost_unseen():
    """Each tensor in turn is shifted by a row, which keeps its scale."""
    tensors = read_tensors(FOLDER)
    healthy = logits(tensors)
    unseen = []
    for name, value in tensors.items():
        damaged = value * 2 if value.shape[0] == 1 else value.roll(1, 0)
        difference = (logits(tensors | {name: damaged}) - healthy).abs().max()
        if difference < 1e-2:
            unseen.append((name, difference.item()))
    assert not unseen


def test_selection_matters():
    twin = Twin(Weights(SHAPE, read_tensors(FOLDER), torch.float32))
    with torch.no_grad():
        some, all_ = (
            twin.logits(twin.hidden(IDS, Mode(topk=topk))[0]) for topk in (SHAPE.index_topk, 10_000)
        )
    assert (some - all_).abs().max() > 0.05
