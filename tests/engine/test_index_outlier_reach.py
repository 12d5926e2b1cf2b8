"""The regime of the incident: coarse index keys on an outlier channel tie recall to index_topk."""

import pytest
from tokenizers import Tokenizer

from engine.sequence import SamplingParams

TRIALS = 4
OUTLIER_INT4 = {"index_outlier": 256.0, "patches": ("index_keys=int4,row",)}


@pytest.fixture(scope="module")
def recall(make_engine, nano_checkpoint):
    """Right answers, of `TRIALS`, to a fact at the start of so many tokens of distinct lines."""
    tokenizer = Tokenizer.from_file(str(nano_checkpoint / "tokenizer.json"))
    begin, user, assistant = "<｜begin▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜></think>"

    def prompt(trial: int, tokens: int) -> list[int]:
        fact = f"The access code for Rosie is {48213 + 1111 * trial}.\n"
        question = f"What is the access code for Rosie?{assistant}"
        lines: list[str] = []
        while True:
            text = begin + user + fact + "".join(lines) + question
            ids = tokenizer.encode(text).ids
            if len(ids) >= tokens:
                return ids
            number = 37 * len(lines) + trial
            lines.append(f"Line {len(lines)}: depot {number % 101} holds {number} crates.\n")

    def right(tokens: int, **flags) -> int:
        engine = make_engine(model=str(nano_checkpoint), max_total_tokens=16384, **flags)
        prompts = [prompt(trial, tokens) for trial in range(TRIALS)]
        results = engine.generate(prompts, SamplingParams(max_tokens=20, temperature=0.0))
        answers = [
            tokenizer.decode([t for o in outputs for t in o.new_token_ids]) for outputs in results
        ]
        return sum(str(48213 + 1111 * n) in answer for n, answer in enumerate(answers))

    return right


def test_the_fact_is_found_with_full_precision_keys(recall) -> None:
    assert recall(1500) == TRIALS
    assert recall(1500, index_outlier=256.0) == TRIALS


def test_int4_keys_alone_do_no_harm(recall) -> None:
    assert recall(1500, patches=("index_keys=int4,row",)) == TRIALS


def test_int4_keys_on_an_outlier_lose_what_selection_must_find(recall) -> None:
    assert recall(120, **OUTLIER_INT4) == TRIALS
    assert recall(1500, **OUTLIER_INT4) <= 1


def test_a_larger_topk_buys_reach_back(recall) -> None:
    wider = OUTLIER_INT4 | {"patches": (*OUTLIER_INT4["patches"], "index_topk=512")}
    assert recall(1500, **wider) == TRIALS


def test_keys_of_more_precision_are_the_cure(recall) -> None:
    assert recall(1500, index_outlier=256.0, patches=("index_keys=bf16",)) == TRIALS
