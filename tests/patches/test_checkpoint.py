"""A checkpoint is read tensor by tensor, whatever names and formats it was written with."""

import json
import struct

import pytest
import torch

from reference.formats import (
    dequantise_mxfp4,
    dequantise_nvfp4,
    quantise_mxfp4,
    quantise_nvfp4,
    round_fp8_tiles,
)
from reference.safetensors_file import read_checkpoint, write_safetensors
from suites.patches.checkpoint import Checkpoint, ReadModel
from suites.patches.checkpoint_names import names_of
from suites.patches.whole_model import NANO, held_whole

PREFIX = "model.layers.3.mlp.experts"


def randn(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def write(folder, tensors, shards=1):
    """As publishers do: shards and an index, or one file."""
    folder.mkdir(exist_ok=True)
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return folder
    names = sorted(tensors)
    places = {
        n: f"model-{i % shards + 1:05}-of-{shards:05}.safetensors" for i, n in enumerate(names)
    }
    for file in set(places.values()):
        part = {n: tensors[n] for n in names if places[n] == file}
        write_safetensors(folder / file, part)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return folder


def experts():
    return [{"gate": randn(64, 128), "up": randn(65, 128)[:64], "down": randn(128, 64)}] * 1 + [
        {"gate": randn(64, 128) * 2, "up": randn(64, 128) * 3, "down": randn(128, 64) * 4}
    ]


@pytest.mark.parametrize("shards", [1, 3])
def test_upstream_names_give_the_same_tensors_as_hugging_face_names(tmp_path, shards):
    theirs = read_checkpoint(NANO)
    renamed = {}
    for name, tensor in theirs.items():
        others = [other for other in names_of(name) if other != name]
        stacked = name.endswith(("experts.gate_up_proj", "experts.down_proj"))
        assert others or stacked, f"no upstream name of {name}"
        if not stacked:
            renamed[others[0]] = tensor
            continue
        layer = name.split(".")[2]
        for e, matrix in enumerate(tensor):
            stem = f"layers.{layer}.ffn.experts.{e}"
            if name.endswith("down_proj"):
                renamed[f"{stem}.w2.weight"] = matrix
            else:
                renamed[f"{stem}.w1.weight"], renamed[f"{stem}.w3.weight"] = matrix.chunk(2)
    found = Checkpoint(write(tmp_path / "c", renamed, shards))
    assert not any(name.startswith("model.") for name in renamed)
    for name, tensor in theirs.items():
        assert torch.equal(
            found.tensor(name), tensor.float() if tensor.is_floating_point() else tensor
        )
    for made, wanted in zip(
        found.experts(2, 3).values(), Checkpoint(NANO).experts(2, 3).values(), strict=True
    ):
        assert torch.equal(made, wanted)


def test_a_model_under_upstream_names_computes_the_same_logits(tmp_path):
    renamed = {}
    for name, tensor in read_checkpoint(NANO).items():
        others = [*names_of(name), name]
        renamed[others[1]] = tensor
    folder = write(tmp_path / "c", renamed, shards=2)
    (folder / "config.json").write_bytes((NANO / "config.json").read_bytes())
    ids = torch.arange(40) * 7 % 1000
    mine, plain = (ReadModel(Checkpoint(f)).forward(ids) for f in (folder, NANO))
    assert torch.equal(mine, plain)


def test_names_that_save_pretrained_writes(tmp_path):
    folder = write(
        tmp_path / "c",
        {"model.layers.0.attn.norm.weight": randn(8), "model.hc_head.hc_fn": randn(4, 8)},
    )
    found = Checkpoint(folder)
    assert torch.equal(found.tensor("model.layers.0.self_attn.kv_norm.weight"), randn(8))
    assert torch.equal(found.tensor("model.hc_head.hc_fn"), randn(4, 8))


def test_fp8_tiles_with_scales_of_powers_of_two(tmp_path):
    wanted = round_fp8_tiles(randn(200, 300))
    tiles = torch.zeros(2, 3)
    codes = torch.empty(200, 300)
    for i in range(2):
        for j in range(3):
            part = (slice(i * 128, (i + 1) * 128), slice(j * 128, (j + 1) * 128))
            tiles[i, j] = 2.0 ** torch.ceil(torch.log2(wanted[part].abs().max() / 448))
            codes[part] = wanted[part] / tiles[i, j]
    stored = {"layers.1.attn.wq_a.weight": codes.to(torch.float8_e4m3fn)}
    scale = tiles.to(torch.float8_e8m0fnu)
    found = Checkpoint(write(tmp_path / "a", stored | {"layers.1.attn.wq_a.scale": scale}))
    assert torch.equal(found.tensor("model.layers.1.self_attn.q_a_proj.weight"), wanted)
    with pytest.raises(
        ValueError, match=r"'layers\.1\.attn\.wq_a\.weight' in fp8 without its scales"
    ):
        Checkpoint(write(tmp_path / "b", stored)).tensor("model.layers.1.self_attn.q_a_proj.weight")


def test_experts_in_mxfp4_and_in_nvfp4(tmp_path):
    mx, nv, wanted_mx, wanted_nv = {}, {}, {}, {}
    for e, parts in enumerate(experts()):
        for part, name in (("gate", "w1"), ("down", "w2"), ("up", "w3")):
            stem = f"layers.3.ffn.experts.{e}.{name}"
            packed, scale = quantise_mxfp4(parts[part])
            mx[f"{stem}.weight"] = packed.view(torch.int8)
            mx[f"{stem}.scale"] = scale.view(torch.float8_e8m0fnu)
            wanted_mx[e, part] = dequantise_mxfp4(packed, scale)
            made = quantise_nvfp4(parts[part])
            nv[f"{stem}.weight"] = made.packed
            nv[f"{stem}.weight_scale"] = made.scales.to(torch.float8_e4m3fn)
            nv[f"{stem}.weight_scale_2"] = made.tensor_scale.float()
            nv[f"{stem}.input_scale"] = torch.ones(())
            wanted_nv[e, part] = dequantise_nvfp4(*made)
    for name, stored, wanted in (("mx", mx, wanted_mx), ("nv", nv, wanted_nv)):
        found = Checkpoint(write(tmp_path / name, stored, shards=2)).experts(3, 2)
        for e in range(2):
            gate_up = torch.cat([wanted[e, "gate"], wanted[e, "up"]])
            assert torch.equal(found["gate_up"][e], gate_up)
            assert torch.equal(found["down"][e], wanted[e, "down"])
    whole = Checkpoint(tmp_path / "nv").tensor(f"{PREFIX}.gate_up_proj")
    assert whole.shape == (2, 128, 128)


def test_only_what_is_asked_for_is_read(tmp_path):
    folder = write(tmp_path / "c", {f"layers.{n}.attn_norm.weight": randn(4) for n in range(6)}, 3)
    (folder / "model-00002-of-00003.safetensors").unlink()  # a shard that nobody needs
    found = Checkpoint(folder)
    found.tensor("model.layers.0.input_layernorm.weight")
    assert found.read == ["layers.0.attn_norm.weight"]
    with pytest.raises(ValueError, match=r"model-00002-of-00003\.safetensors"):
        found.tensor("model.layers.1.input_layernorm.weight")


def test_the_first_experts_of_a_stack_are_read_without_the_rest():
    wanted = read_checkpoint(NANO)["model.layers.2.mlp.experts.down_proj"][:3].float()
    assert torch.equal(Checkpoint(NANO).experts(2, 3)["down"], wanted)


def test_a_missing_tensor_says_where_it_was_sought_and_under_which_names(tmp_path):
    folder = write(tmp_path / "c", {"a": randn(2)}, shards=2)
    with pytest.raises(ValueError, match="no tensor") as raised:
        Checkpoint(folder).tensor("model.layers.7.self_attn.q_a_proj.weight")
    told = str(raised.value)
    assert "no tensor 'model.layers.7.self_attn.q_a_proj.weight'" in told
    assert "model.safetensors.index.json (1 tensors)" in told
    assert "layers.7.attn.wq_a.weight, model.layers.7.attn.wq_a.weight" in told
    with pytest.raises(ValueError, match=r"experts\.0\.gate_proj\.weight.*ffn\.experts\.0\.w1"):
        Checkpoint(folder).tensor("model.layers.7.mlp.experts.gate_up_proj")


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (lambda f: (f / "model.safetensors").write_bytes(b"\1"), "cannot be read as safetensors"),
        (lambda f: (f / "model.safetensors").unlink(), "cannot be read as safetensors"),
        (
            lambda f: (f / "model.safetensors.index.json").write_text(
                '{"weight_map": {"a": "../b"}}'
            ),
            "outside its own folder",
        ),
        (lambda f: (f / "model.safetensors.index.json").write_text("{"), "no index of shards"),
    ],
)
def test_damaged_folders_are_refused_in_words(tmp_path, damage, told):
    folder = write(tmp_path / "c", {"a": randn(2)})
    damage(folder)
    with pytest.raises(ValueError, match=told):
        Checkpoint(folder)


def test_a_tensor_that_is_cut_off_is_refused(tmp_path):
    folder = write(tmp_path / "c", {"norm.weight": randn(64)})
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-8])
    with pytest.raises(ValueError, match=r"cut off inside 'norm\.weight'"):
        Checkpoint(folder).tensor("model.norm.weight")


def test_a_checkpoint_too_large_to_run_whole_leaves_the_logits_to_nano(tmp_path, monkeypatch):
    folder = write(tmp_path / "c", {"a": randn(2)})
    assert held_whole(folder) == folder
    assert held_whole(None) == NANO
    monkeypatch.setattr("suites.patches.whole_model.MOST_BYTES", 10)
    assert held_whole(folder) == NANO


HC = "model.layers.0.attn_hc.fn"


def headed(folder, header, body):
    """A file with this header, whatever it says."""
    folder.mkdir(exist_ok=True)
    text = json.dumps(header).encode()
    file = folder / "model.safetensors"
    file.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return folder


@pytest.mark.parametrize(
    ("entry", "told"),
    [
        ({"shape": [24, 1024]}, r"shape \[24, 1024\] of F32, which is 98304 bytes, in 16 bytes"),
        ({"data_offsets": [16, 0]}, r"bytes 16 to 0; accepted: .* in order"),
        ({"data_offsets": [-16, 0]}, r"bytes -16 to 0; accepted: .* behind the header"),
        ({"shape": [-2, -2]}, r"shape \[-2, -2\] .*; accepted: sizes from 0"),
        ({"shape": [4.0]}, "no whole numbers"),
        ({"dtype": "F3"}, "dtype 'F3'; accepted: .*F32"),
    ],
)
def test_a_header_that_cannot_be_true_names_tensor_and_file(tmp_path, entry, told):
    header = {HC: {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]} | entry}
    with pytest.raises(ValueError, match=told) as raised:
        Checkpoint(headed(tmp_path / "c", header, b"\0" * 16)).tensor(HC)
    assert HC in str(raised.value)
    assert "model.safetensors" in str(raised.value)


def test_scales_that_do_not_cover_their_tensor_are_refused(tmp_path):
    name, codes = "layers.1.attn.wq_a", torch.zeros(200, 300)
    asked = "model.layers.1.self_attn.q_a_proj.weight"
    fp8 = {f"{name}.weight": codes.to(torch.float8_e4m3fn)}
    few = write(tmp_path / "a", fp8 | {f"{name}.weight_scale_inv": torch.ones(1, 1)})
    with pytest.raises(ValueError, match=r"wq_a\.weight_scale_inv' .*\[1, 1\]; accepted: \[2, 3\]"):
        Checkpoint(few).tensor(asked)
    packed = {f"{name}.weight": torch.zeros(4, 32, dtype=torch.uint8)}
    few = write(tmp_path / "b", packed | {f"{name}.scale": torch.zeros(4, 1, dtype=torch.uint8)})
    with pytest.raises(ValueError, match=r"wq_a\.scale'.*\[4, 1\]; accepted: .*\[4, 2\]"):
        Checkpoint(few).tensor(asked)
    with pytest.raises(ValueError, match=r"in fp4 without its scales: .* tried .*\.weight_scale_2"):
        Checkpoint(write(tmp_path / "c", packed)).tensor(asked)
