"""Dumps of two sides: the first layer and token at which they part, read without torch."""

import json

import pytest
import torch
from safetensors.torch import save_file

from fidelity.errors import ConfigError
from fidelity.golden.dumps import compare, lines_of, order_of
from fidelity.golden.safetensors import read

IDS = list(range(40))


def tensors(rows=40, dtype=torch.float32):
    draw = torch.Generator().manual_seed(1)
    found = {"embed": torch.randn(rows, 8, generator=draw)}
    for layer in range(3):
        for stage in ("attn_in", "attn_out", "ffn_out"):
            found[f"L{layer}.{stage}"] = torch.randn(rows, 8, generator=draw)
        found[f"L{layer}.index_topk"] = torch.arange(rows * 4, dtype=torch.int32).view(rows, 4)
    found["logits"] = torch.randn(rows, 16, generator=draw)
    return {k: v.to(dtype) if v.is_floating_point() else v for k, v in found.items()}


def dump(folder, values, *, first=0, ids=IDS, name="r1"):
    folder.mkdir(exist_ok=True)
    about = {"request_id": name, "first_position": str(first), "token_ids": json.dumps(ids)}
    values = {k: v[first:].contiguous() for k, v in values.items()}
    save_file(values, folder / f"{name}.safetensors", metadata=about)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_every_dtype_is_read_as_torch_wrote_it(tmp_path, dtype):
    values = tensors(dtype=dtype)
    dump(tmp_path / "a", values)
    file = read(tmp_path / "a" / "r1.safetensors")
    assert list(file.tensors["L1.attn_out"].row(7)) == values["L1.attn_out"][7].float().tolist()
    assert list(file.tensors["L1.index_topk"].row(7)) == values["L1.index_topk"][7].tolist()
    assert file.metadata["request_id"] == "r1"


def test_equal_dumps_agree_and_rounding_is_no_parting(tmp_path):
    dump(tmp_path / "a", tensors())
    dump(
        tmp_path / "b",
        {
            k: v * (1 + 1e-6) if k != "L0.index_topk" and v.is_floating_point() else v
            for k, v in tensors().items()
        },
    )
    found = compare(tmp_path / "a", tmp_path / "b")
    assert found.first is None
    assert lines_of(found) == ["1 requests agree in every layer and token"]


def test_the_first_layer_and_token_are_named(tmp_path):
    values = tensors()
    dump(tmp_path / "golden", values)
    values = {k: v.clone() for k, v in values.items()}
    values["logits"][5:] += 1.0
    values["L2.attn_in"][20:] += 1.0
    values["L1.attn_out"][23::4] *= 1.5
    dump(tmp_path / "mine", values)
    found = compare(tmp_path / "mine", tmp_path / "golden")
    assert (found.first.key, found.first.position, found.first.tokens) == ("L1.attn_out", 23, 5)
    assert [p.key for p in found.partings] == ["L1.attn_out", "L2.attn_in", "logits"]
    assert "the dumps part at L1.attn_out, token 23" in lines_of(found)[0]


def test_a_selected_set_is_compared_as_a_set(tmp_path):
    values = tensors()
    dump(tmp_path / "golden", values)
    values = {k: v.clone() for k, v in values.items()}
    values["L0.index_topk"] = values["L0.index_topk"].flip(1)
    values["L1.index_topk"][9, 0] = 100_000
    dump(tmp_path / "mine", values)
    first = compare(tmp_path / "mine", tmp_path / "golden").first
    assert (first.key, first.position, first.size) == ("L1.index_topk", 9, 0.4)


def test_rows_that_came_from_a_cache_are_aligned_by_position(tmp_path):
    values = tensors()
    dump(tmp_path / "golden", values)
    values = {k: v.clone() for k, v in values.items()}
    values["L1.ffn_out"][30] += 1.0
    dump(tmp_path / "mine", values, first=16)
    first = compare(tmp_path / "mine", tmp_path / "golden").first
    assert (first.key, first.position, first.compared) == ("L1.ffn_out", 30, 24)


def test_a_nan_is_a_difference(tmp_path):
    values = tensors()
    dump(tmp_path / "golden", values)
    values = {k: v.clone() for k, v in values.items()}
    values["L0.attn_in"][3, 0] = float("nan")
    dump(tmp_path / "mine", values)
    assert compare(tmp_path / "mine", tmp_path / "golden").first.position == 3


def test_what_cannot_be_compared_is_refused_in_words(tmp_path):
    dump(tmp_path / "a", tensors())
    dump(tmp_path / "b", tensors(), ids=[7, 7])
    with pytest.raises(ConfigError, match="no request with the same token ids"):
        compare(tmp_path / "a", tmp_path / "b")
    with pytest.raises(ConfigError, match="holds no dump"):
        compare(tmp_path, tmp_path / "a")
    (tmp_path / "c").mkdir()
    for content in (b"", b"\xff" * 40, b"\x02" + b"\0" * 7 + b"[]"):
        (tmp_path / "c" / "x.safetensors").write_bytes(content)
        with pytest.raises(ConfigError, match="is no safetensors file"):
            compare(tmp_path / "c", tmp_path / "a")


def test_keys_are_in_the_order_of_computation():
    keys = ["logits", "L10.attn_in", "L2.ffn_out", "L2.attn_in", "embed"]
    assert sorted(keys, key=order_of) == [
        "embed",
        "L2.attn_in",
        "L2.ffn_out",
        "L10.attn_in",
        "logits",
    ]
