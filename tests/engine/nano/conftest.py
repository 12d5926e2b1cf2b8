import pytest
import torch

from engine.nano.corpus import ensure_tokenizer
from engine.nano.tokens import Encoder

SEED = 5


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def tokenizer_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tokenizer")
    ensure_tokenizer(folder, 1280, SEED)
    return folder


@pytest.fixture(scope="session")
def encoder(tokenizer_folder):
    return Encoder.load(tokenizer_folder)
