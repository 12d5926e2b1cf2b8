"""The engine's logits against `transformers`, which computes the same model independently."""

import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer

LENGTHS = (61, 300, 1200, 2100)
MAX_ABS_ERR = 5e-4
MAX_TIED_FRAC = 0.01
SCRIPT = Path(__file__).with_name("transformers_logits.py")
MODELS = ("nano", "tiny")


def document(tokenizer: Tokenizer, tokens: int) -> torch.Tensor:
    """Text of the kind that the model reads: numbered lines, no two alike."""
    lines = (
        f"Entry {n}: depot {n * 37 % 101} holds {n * 61 % 997} crates since day {n * 13 % 365}.\n"
        for n in range(tokens // 8)
    )
    return torch.tensor(tokenizer.encode("".join(lines)).ids[:tokens])


class Golden:
    """Token ids, and what `transformers` computed for them."""

    def __init__(self, checkpoint: Path, prompts: dict[int, torch.Tensor], folder: Path) -> None:
        self.checkpoint = checkpoint
        self.prompts = {length: ids.tolist() for length, ids in prompts.items()}
        save_file({str(n): ids.long() for n, ids in prompts.items()}, folder / "in.safetensors")
        # An empty environment: no PYTHONPATH that could lead back into the checkout.
        done = subprocess.run(
            [sys.executable, "-P", SCRIPT, checkpoint, "in.safetensors", "out.safetensors"],
            cwd=folder,
            env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOME": str(folder)},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        self.tensors = load_file(folder / "out.safetensors")

    def logits(self, length: int) -> torch.Tensor:
        return self.tensors[f"{length}/logits"]

    def selections(self, length: int) -> dict[str, torch.Tensor]:
        prefix = f"{length}/L"
        return {
            key.removeprefix(f"{length}/"): value
            for key, value in self.tensors.items()
            if key.startswith(prefix)
        }


@pytest.fixture(scope="module", params=MODELS)
def golden(request, tmp_path_factory, nano_checkpoint, tiny_checkpoint) -> Golden:
    if request.param == "nano":
        tokenizer = Tokenizer.from_file(str(nano_checkpoint / "tokenizer.json"))
        prompts = {length: document(tokenizer, length) for length in LENGTHS}
        checkpoint = nano_checkpoint
    else:
        generator = torch.Generator().manual_seed(3)
        prompts = {n: torch.randint(2, 199, (n,), generator=generator) for n in LENGTHS}
        checkpoint = tiny_checkpoint
    return Golden(checkpoint, prompts, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def engine(golden, make_engine):
    return make_engine(model=str(golden.checkpoint), max_total_tokens=16384, chunk_tokens=4096)


@pytest.fixture
def drive(engine, driver):
    """A driver on an engine that remembers nothing."""
    engine.scheduler.flush_cache()
    return driver(engine)


class Recorder:
    """Stands where activation dumps stand, and keeps the selections."""

    def __init__(self) -> None:
        self.kept = defaultdict(list)

    def record(self, name: str, tensor: torch.Tensor) -> None:
        if name.endswith("_topk"):
            self.kept[name].append(tensor.clone())

    def selections(self) -> dict[str, torch.Tensor]:
        return {name: torch.cat(parts) for name, parts in self.kept.items()}


def same_sets(ours: torch.Tensor, theirs: torch.Tensor) -> torch.Tensor:
    """Which rows select the same, whatever the order and the padding."""
    missing = ours.shape[1] - theirs.shape[1]
    theirs = torch.nn.functional.pad(theirs, (0, missing), value=-1)
    return (ours.long().sort(dim=-1).values == theirs.sort(dim=-1).values).all(dim=-1)


def force_selections(engine, monkeypatch, selections: dict[str, torch.Tensor]) -> None:
    """Make one sequence select what `transformers` selected."""
    index, route = engine.model.index, engine.model.route

    def forced_index(layer, w, x, latent, **where):
        own = index(layer, w, x, latent, **where)
        chosen = selections[f"L{layer}.index_topk"][where["batch"].positions.long()].int()
        chosen = torch.nn.functional.pad(chosen, (0, own.shape[1] - chosen.shape[1]), value=-1)
        order = torch.where(chosen < 0, 1 << 30, chosen).sort(dim=-1).values
        return torch.where(order == 1 << 30, -1, order)

    def forced_route(layer, x, batch):
        own, weights = route(layer, x, batch)
        if engine.architecture.hash_layers[layer]:
            return own, weights
        ids = selections[f"L{layer}.moe_topk"][batch.positions.long()]
        gate = engine.model.weights.layers[layer].moe.gate
        scores = torch.nn.functional.softplus(x @ gate.T).sqrt().gather(1, ids)
        scaling = engine.architecture.routed_scaling_factor
        return ids.int(), scores / scores.sum(dim=-1, keepdim=True) * scaling

    monkeypatch.setattr(engine.model, "index", forced_index)
    monkeypatch.setattr(engine.model, "route", forced_route)


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
    worst = (ours - theirs).abs().max().item()
    assert worst <= MAX_ABS_ERR, f"{what}: max |dlogit| {worst:.2e} > {MAX_ABS_ERR:.0e}"


@pytest.mark.parametrize("length", LENGTHS)
def test_one_chunk_agrees_and_near_ties_are_counted(
    golden, engine, drive, monkeypatch, length
) -> None:
    recorder = Recorder()
    monkeypatch.setattr(engine, "dumps", recorder)
    logits = drive.logits(golden.prompts[length])
    ours = recorder.selections()
    theirs = golden.selections(length)
    assert ours.keys() == theirs.keys()
    tied = ~torch.stack([same_sets(ours[name], theirs[name]) for name in ours]).all(dim=0)
    assert tied.float().mean().item() <= MAX_TIED_FRAC
    if tied.any():
        monkeypatch.setattr(engine, "dumps", None)
        force_selections(engine, monkeypatch, theirs)
        engine.scheduler.flush_cache()
        logits = drive.logits(golden.prompts[length])
    assert_close(logits, golden.logits(length), f"{length} tokens, {int(tied.sum())} tied rows")


def test_forced_selection_really_changes_what_is_read(golden, engine, drive, monkeypatch) -> None:
    theirs = golden.selections(1200)
    wrong = {name: value.flip(0) if "index" in name else value for name, value in theirs.items()}
    force_selections(engine, monkeypatch, wrong)
    logits = drive.logits(golden.prompts[1200])
    assert (logits - golden.logits(1200)).abs().max() > 0.1


def test_selection_drops_entries_at_the_longer_lengths(golden, engine) -> None:
    topk, rate = engine.architecture.index_topk, engine.architecture.csa_rate
    for length in LENGTHS[1:]:
        visible = length // rate
        assert visible > 2 * topk
        for name, chosen in golden.selections(length).items():
            if name.endswith("index_topk"):
                # The last token reads topk of the visible entries, and not simply the newest.
                kept = set(chosen[-1].tolist())
                assert len(kept) == topk
                assert kept != set(range(visible - topk, visible))


@pytest.mark.parametrize("chunk", range(1, 34))
def test_any_chunk_size_agrees_at_the_shortest_length(golden, drive, chunk) -> None:
    logits = drive.logits(golden.prompts[61], chunk=chunk)
    assert_close(logits, golden.logits(61), f"chunks of {chunk}")


@pytest.mark.parametrize(("length", "chunk"), [(300, 37), (1200, 512), (2100, 512)])
def test_chunked_prefill_agrees(golden, drive, length, chunk) -> None:
    logits = drive.logits(golden.prompts[length], chunk=chunk)
    assert_close(logits, golden.logits(length), f"{length} tokens in chunks of {chunk}")


@pytest.mark.parametrize(("length", "prefilled"), [(61, 3), (300, 250), (1200, 1170), (2100, 2078)])
def test_cached_decode_agrees(golden, drive, length, prefilled) -> None:
    sequence = drive.open(golden.prompts[length])
    drive.step((sequence, prefilled))
    rows = [drive.step((sequence, 1))[0] for _ in range(length - prefilled)]
    drive.close(sequence)
    assert_close(torch.cat(rows), golden.logits(length)[prefilled:], f"decode at {length}")


@pytest.mark.parametrize("length", LENGTHS[1:])
def test_prefix_hit_agrees(golden, engine, drive, length) -> None:
    prompt = golden.prompts[length]
    cut = length // 2
    drive.logits(prompt[:cut])
    cached = cut // engine.config.page_size * engine.config.page_size
    sequence = drive.open(prompt)
    assert sequence.num_computed == sequence.cached_tokens == cached > 0
    (rows,) = drive.step((sequence, length - cached))
    drive.close(sequence)
    assert_close(rows, golden.logits(length)[cached:], f"hit of {cached} tokens")


def test_mixed_batch_agrees(golden, engine, drive) -> None:
    """Prefill chunks of unequal sizes, decodes and a prefix hit share each forward pass."""
    drive.logits(golden.prompts[2100][:700])
    sequences = {length: drive.open(golden.prompts[length]) for length in LENGTHS}
    starts = {length: s.num_computed for length, s in sequences.items()}
    assert starts[2100] == 640
    assert starts[61] == 0
    strides = {61: 1, 300: 7, 1200: 33, 2100: 150}
    rows = defaultdict(list)
    while any(s.num_uncomputed for s in sequences.values()):
        parts = {
            length: (s, min(strides[length], s.num_uncomputed))
            for length, s in sequences.items()
            if s.num_uncomputed
        }
        for length, logits in zip(parts, drive.step(*parts.values()), strict=True):
            rows[length].append(logits)
    engine.ownership.check_integrity(sequences.values())
    for length, sequence in sequences.items():
        drive.close(sequence)
        theirs = golden.logits(length)[starts[length] :]
        assert_close(torch.cat(rows[length]), theirs, f"mixed {length}")


def test_logits_are_no_trivial_match(golden) -> None:
    assert golden.logits(300).std() > 0.3
    assert (golden.logits(300)[:, 0] - golden.logits(300)[:, 1]).std() > 0.1
