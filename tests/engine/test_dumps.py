"""Activation dumps: keys, shapes, rows, one file a request."""

import json

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file

from engine.dumps import file_name
from engine.sequence import EngineRequest, SamplingParams

PROMPT = torch.randint(2, 199, (150,), generator=torch.Generator().manual_seed(2)).tolist()
GREEDY = SamplingParams(max_tokens=5, temperature=0.0, ignore_eos=True)


def metadata(path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        return file.metadata()


def run(engine, request_id, token_ids=PROMPT, sampling=GREEDY):
    outputs = []
    request = EngineRequest(
        request_id=request_id,
        prompt_token_ids=token_ids,
        sampling=sampling,
        on_output=outputs.append,
    )
    engine.scheduler.submit(request)
    while engine.scheduler.step():
        pass
    return [token for output in outputs for token in output.new_token_ids]


@pytest.fixture
def engine(make_engine, tmp_path):
    return make_engine(dump_activations=str(tmp_path / "dumps"), chunk_tokens=64)


def test_a_dump_has_every_key_and_a_row_for_each_computed_token(engine, tmp_path) -> None:
    generated = run(engine, "r1")
    tensors = load_file(tmp_path / "dumps" / "r1.safetensors")
    a = engine.architecture
    expected = {"embed", "logits"}
    for layer, kind in enumerate(a.layer_kinds):
        names = ["attn_in", "attn_out", "moe_topk", "ffn_out"]
        names += ["index_topk"] * (kind == "compressed_sparse_attention")
        expected |= {f"L{layer}.{name}" for name in names}
    assert set(tensors) == expected
    rows = len(PROMPT) + 4  # the last generated token is never computed
    assert {t.shape[0] for t in tensors.values()} == {rows}
    assert tensors["embed"].shape == tensors["L0.attn_in"].shape == (rows, a.hidden_size)
    assert tensors["L1.index_topk"].shape == (rows, a.index_topk)
    assert tensors["L1.index_topk"].dtype == tensors["L0.moe_topk"].dtype == torch.int32
    assert tensors["logits"].shape == (rows, a.vocab_size)
    assert tensors["logits"][len(PROMPT) - 1 :].argmax(dim=-1).tolist() == generated
    tokens = torch.tensor(PROMPT + generated[:-1])
    assert torch.equal(tensors["embed"], engine.model.weights.embed[tokens])
    about = metadata(tmp_path / "dumps" / "r1.safetensors")
    assert about["first_position"] == "0"
    assert json.loads(about["token_ids"]) == tokens.tolist()


def test_cached_rows_are_not_in_the_dump_and_it_says_where_it_begins(engine, tmp_path) -> None:
    run(engine, "cold")
    run(engine, "warm")
    about = metadata(tmp_path / "dumps" / "warm.safetensors")
    warm = load_file(tmp_path / "dumps" / "warm.safetensors")
    cold = load_file(tmp_path / "dumps" / "cold.safetensors")
    assert about["first_position"] == "128"
    assert warm["logits"].shape[0] == len(PROMPT) + 4 - 128
    assert torch.allclose(warm["logits"], cold["logits"][128:], atol=1e-4)


def test_side_by_side_requests_are_kept_apart(engine, tmp_path) -> None:
    outputs = engine.generate([PROMPT, PROMPT[:40]], GREEDY)
    for index, length in enumerate((150, 40)):
        tensors = load_file(tmp_path / "dumps" / f"generate-{index}.safetensors")
        answer = [t for o in outputs[index] for t in o.new_token_ids]
        assert tensors["logits"].shape[0] == length + 4
        assert tensors["logits"][length - 1 :].argmax(dim=-1).tolist() == answer


def test_rows_computed_again_after_a_retraction_are_kept_once(make_engine, tmp_path) -> None:
    engine = make_engine(dump_activations=str(tmp_path), max_total_tokens=64 * 5, chunk_tokens=64)
    long = SamplingParams(max_tokens=60, temperature=0.0, ignore_eos=True)
    outputs = engine.generate([PROMPT[:100], PROMPT[40:120]], long)
    assert engine.scheduler.gauges()["num_retractions_total"] > 0
    for index, length in enumerate((100, 80)):
        tensors = load_file(tmp_path / f"generate-{index}.safetensors")
        answer = [t for o in outputs[index] for t in o.new_token_ids]
        assert {t.shape[0] for t in tensors.values()} == {length + 59}
        assert tensors["logits"][length - 1 :].argmax(dim=-1).tolist() == answer


def test_nothing_is_held_back_after_a_request_ends(engine) -> None:
    run(engine, "r1")
    assert engine.dumps._rows == {}
    assert engine.dumps._span == {}


@pytest.mark.parametrize("request_id", ["../../etc/passwd", "a/b", "..", "x" * 400, "\ud800", "ü"])
def test_any_request_id_makes_a_harmless_file_name(request_id) -> None:
    name = file_name(request_id)
    assert "/" not in name
    assert not name.startswith(".")
    assert len(name) < 120
    assert name.isascii()
    assert name != file_name(request_id + "x")
