"""What a prompt generates by itself, which no company may change."""

import pytest

from tests.engine.scheduler.asking import GREEDY, tokens


@pytest.fixture(scope="module")
def alone(make_engine):
    """What a prompt generates by itself, without cache, in one chunk."""
    engine = make_engine(disable_prefix_cache=True, chunk_tokens=4096)
    known: dict = {}

    def generate(token_ids, sampling=GREEDY):
        key = (tuple(token_ids), sampling)
        if key not in known:
            known[key] = tokens(engine.generate([token_ids], sampling)[0])
        return known[key]

    return generate
