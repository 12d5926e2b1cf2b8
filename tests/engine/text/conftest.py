from pathlib import Path

import pytest

from engine.encoding import ChatEncoder
from engine.encoding_spec import load_encoding_spec
from engine.parsers import Parsers
from engine.tokenizer import Tokenizer

NANO = Path(__file__).parents[3] / "engine" / "checkpoints" / "nano"


@pytest.fixture(scope="session")
def tokenizer():
    return Tokenizer(NANO)


@pytest.fixture(scope="session")
def spec():
    return load_encoding_spec(NANO)


@pytest.fixture(scope="session")
def encoder(spec, tokenizer):
    return ChatEncoder(spec, tokenizer)


@pytest.fixture(scope="session")
def parsers(spec, tokenizer):
    return Parsers(spec, tokenizer)
