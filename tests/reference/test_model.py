"""The whole model against `transformers`, and against the engine: activations and selections."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch.nn.functional import pad

from engine.config import EngineConfig
from engine.core import Engine
from engine.sequence import SamplingParams
from reference.model import Model
from reference.safetensors_file import read_safetensors, write_safetensors

MAX_ABS_ERR = 5e-4
MAX_TIED_FRAC = 0.01
LENGTHS = (61, 300, 700)


@pytest.fixture(scope="module", params=["small", "nano"])
def golden(request):
    return request.getfixturevalue(f"{request.param}_golden")


@pytest.fixture(scope="module")
def model(golden) -> Model:
    return Model(golden.checkpoint)


def activations(model: Model, token_ids, **options) -> dict[str, torch.Tensor]:
    kept: dict[str, torch.Tensor] = {}
    model.forward(token_ids, record=kept.__setitem__, **options)
    return kept


def rows_that_differ(ours: torch.Tensor, theirs: torch.Tensor) -> list[int]:
    """Rows whose chosen sets differ, whatever their order and padding."""
    width = max(ours.shape[1], theirs.shape[1])
    both = [
        pad(rows, (0, width - rows.shape[1]), value=-1).sort(1).values for rows in (ours, theirs)
    ]
    return (both[0] != both[1]).any(1).nonzero().flatten().tolist()


def assert_agree(model: Model, token_ids, theirs: dict[str, torch.Tensor], *, what: str):
    """All activations agree; a row that selects otherwise is a near-tie, and rare.

    Beyond such a row the two compute different things: both then go on with the same selection.
    """
    ours = activations(model, token_ids)
    assert set(ours) == set(theirs)
    chosen = {key: rows for key, rows in theirs.items() if key.endswith("topk")}
    differ = {row for key in chosen for row in rows_that_differ(ours[key], chosen[key].int())}
    assert len(differ) <= MAX_TIED_FRAC * len(token_ids), f"{what}: rows {sorted(differ)}"
    if differ:
        ours = activations(model, token_ids, forced=chosen)
    for key in set(theirs) - set(chosen):
        worst = (ours[key] - theirs[key]).abs().max().item()
        bound = MAX_ABS_ERR * (1.0 if key == "logits" else max(1.0, theirs[key].std().item()))
        assert worst <= bound, f"{what}: {key} differs by {worst:.1e} > {bound:.1e}"
    return ours


@pytest.mark.parametrize("length", LENGTHS)
def test_every_activation_agrees_with_transformers(golden, model, length) -> None:
    theirs = golden.activations(length)
    assert_agree(model, golden.prompts[length], theirs, what=f"{length} tokens")


def test_float64_agrees_too(golden) -> None:
    double = Model(golden.checkpoint, torch.float64)
    ours = assert_agree(double, golden.prompts[300], golden.activations(300), what="float64")
    assert ours["logits"].dtype == torch.float64


def test_selections_really_leave_entries_out(golden, model) -> None:
    chosen = golden.activations(700)
    for key in (key for key in chosen if key.endswith("index_topk")):
        newest = 700 // model.config.rates["compressed_sparse_attention"]
        kept = set(chosen[key][-1].tolist())
        assert len(kept) == model.config.index_topk
        assert kept != set(range(newest - len(kept), newest))


def test_a_forced_selection_is_used(golden, model) -> None:
    theirs = golden.activations(300)
    chosen = {key: rows for key, rows in theirs.items() if key.endswith("topk")}
    same = model.forward(golden.prompts[300], forced=chosen)
    assert (same - theirs["logits"]).abs().max() <= MAX_ABS_ERR
    for kind in ("index_topk", "moe_topk"):
        turned = {key: rows.flip(0) for key, rows in chosen.items() if key.endswith(kind)}
        other = model.forward(golden.prompts[300], forced=turned)
        assert (other - same).abs().max() > 0.05, kind


def test_every_tensor_of_the_checkpoint_counts(small_golden) -> None:
    """A parameter that a port has lost would pass any comparison in which it is neutral."""
    model = Model(small_golden.checkpoint)
    prompt = small_golden.prompts[61]
    healthy = model.forward(prompt)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in list(model.tensors.items()):
        if tensor.is_floating_point():
            noise = torch.randn(tensor.shape, generator=generator)
            model.tensors[name] = tensor + 0.3 * tensor.abs().mean() * noise
        else:
            model.tensors[name] = tensor.flip(0)
        change = (model.forward(prompt) - healthy).abs().max().item()
        assert change > 2 * MAX_ABS_ERR, f"{name} changes the logits by {change:.1e} only"
        model.tensors[name] = tensor


@pytest.fixture(scope="module")
def engine_dumps(golden, tmp_path_factory) -> dict[int, dict[str, torch.Tensor]]:
    """What the engine dumps of the same prompts, in chunks, side by side."""
    folder = tmp_path_factory.mktemp("dumps")
    engine = Engine(
        EngineConfig(
            model=str(golden.checkpoint),
            max_total_tokens=8192,
            chunk_tokens=256,
            dump_activations=str(folder),
        )
    )
    prompts = [golden.prompts[length].tolist() for length in LENGTHS]
    engine.generate(prompts, SamplingParams(max_tokens=1, temperature=0.0, ignore_eos=True))
    return {n: load_file(folder / f"generate-{i}.safetensors") for i, n in enumerate(LENGTHS)}


@pytest.mark.parametrize("length", LENGTHS)
def test_the_engines_dump_agrees_key_by_key(golden, model, engine_dumps, length) -> None:
    dump = engine_dumps[length]
    ours = assert_agree(model, golden.prompts[length], dump, what=f"engine, {length} tokens")
    assert {key: rows.shape for key, rows in ours.items()} == {k: r.shape for k, r in dump.items()}
    assert {key: rows.dtype for key, rows in ours.items()} == {k: r.dtype for k, r in dump.items()}


def test_safetensors_are_read_and_written_as_the_library_does(tmp_path) -> None:
    tensors = {
        "f32": torch.randn(3, 5),
        "bf16": torch.randn(7).bfloat16(),
        "e4m3": torch.randn(2, 3).to(torch.float8_e4m3fn),
        "i32": torch.tensor([[-1, 2]], dtype=torch.int32),
        "u8": torch.arange(5).to(torch.uint8),
        "empty": torch.empty(0, 4),
        "scalar": torch.tensor(2.5, dtype=torch.float64),
    }
    write_safetensors(tmp_path / "ours", tensors, {"made": "here"})
    save_file(tensors, tmp_path / "theirs", metadata={"made": "here"})
    read, metadata = read_safetensors(tmp_path / "theirs")
    for found in (read, load_file(tmp_path / "ours"), read_safetensors(tmp_path / "ours")[0]):
        assert set(found) == set(tensors)
        for name, tensor in tensors.items():
            assert found[name].dtype == tensor.dtype
            assert found[name].shape == tensor.shape
            assert found[name].float().tolist() == tensor.float().tolist()
    assert metadata == {"made": "here"}


def test_shards_are_read_as_one(golden, tmp_path) -> None:
    shutil.copy(golden.checkpoint / "config.json", tmp_path)
    tensors = load_file(golden.checkpoint / "model.safetensors")
    names = sorted(tensors)
    parts = {"a.safetensors": names[:40], "b.safetensors": names[40:]}
    for file, held in parts.items():
        save_file({name: tensors[name] for name in held}, tmp_path / file)
    weight_map = {name: file for file, held in parts.items() for name in held}
    index = {"weight_map": weight_map}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = Model(golden.checkpoint).forward(golden.prompts[61])
    assert torch.equal(Model(tmp_path).forward(golden.prompts[61]), whole)


class TestBadInput:
    def test_tokens(self, small_golden) -> None:
        model = Model(small_golden.checkpoint)
        for token_ids, message in (
            ([], "token_ids: 0; accepted: 1"),
            ([157], "ids 0 .. 156"),
            ([-1], "ids 0 .. 156"),
            ([3] * 4097, "token_ids: 4097"),
        ):
            with pytest.raises(ValueError, match=message):
                model.forward(torch.tensor(token_ids, dtype=torch.int64))

    def test_checkpoints(self, small_golden, tmp_path) -> None:
        with pytest.raises(ValueError, match=r"config\.json cannot be used"):
            Model(tmp_path)
        config = json.loads((small_golden.checkpoint / "config.json").read_text())
        (tmp_path / "config.json").write_text(json.dumps(config | {"model_type": "llama"}))
        with pytest.raises(ValueError, match="model_type is 'llama'"):
            Model(tmp_path)
        shorter = {key: value for key, value in config.items() if key != "hc_mult"}
        (tmp_path / "config.json").write_text(json.dumps(shorter))
        with pytest.raises(ValueError, match="no key 'hc_mult'"):
            Model(tmp_path)
        (tmp_path / "config.json").write_text(json.dumps(config))
        (tmp_path / "model.safetensors").write_bytes(b"\x08\0\0\0\0\0\0\0{}")
        with pytest.raises(ValueError, match=r"has no tensor 'model\.embed_tokens\.weight'"):
            Model(tmp_path).forward(torch.tensor([3]))
        (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
        with pytest.raises(ValueError, match="cannot be read as safetensors"):
            Model(tmp_path)
