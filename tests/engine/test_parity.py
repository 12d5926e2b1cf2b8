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
# two small models of different shape in every test; the one that ships once, at one length
SMALL = ("random", "tiny")
NANO_TOKENS = 1200


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
        self.checkpoint, self.folder = checkpoint, folder
        self.prompts = {length: ids.tolist() for length, ids in prompts.items()}
        self.tensors: dict[str, torch.Tensor] = {}
        save_file({str(n): ids.long() for n, ids in prompts.items()}, folder / "in.safetensors")

    @property
    def words(self) -> list[str]:
        """What the script is told: checkpoint, input, output."""
        files = (self.folder / name for name in ("in.safetensors", "out.safetensors"))
        return [str(self.checkpoint), *map(str, files)]

    def read(self) -> None:
        self.tensors = load_file(self.folder / "out.safetensors")

    def logits(self, length: int) -> torch.Tensor:
        return self.tensors[f"{length}/logits"]

    def length_of(self, token_ids: list[int]) -> int:
        """Return the golden length that begins with these tokens; selections are causal."""
        return next(n for n, p in self.prompts.items() if p[: len(token_ids)] == token_ids)

    def selections(self, length: int) -> dict[str, torch.Tensor]:
        prefix = f"{length}/L"
        return {
            key.removeprefix(f"{length}/"): value
            for key, value in self.tensors.items()
            if key.startswith(prefix)
        }


@pytest.fixture(scope="module")
def goldens(tmp_path_factory, nano_checkpoint, tiny_checkpoint) -> dict[str, Golden]:
    """By name; one process of `transformers` computes them all."""
    tokenizer = Tokenizer.from_file(str(nano_checkpoint / "tokenizer.json"))
    generator = torch.Generator().manual_seed(3)

    def drawn(low: int, high: int) -> dict[int, torch.Tensor]:
        return {n: torch.randint(low, high, (n,), generator=generator) for n in LENGTHS}

    asked = {
        "random": (tiny_checkpoint, drawn(2, 199)),
        "tiny": (nano_checkpoint.with_name("tiny"), drawn(10, 266)),
        "nano": (nano_checkpoint, {NANO_TOKENS: document(tokenizer, NANO_TOKENS)}),
    }
    goldens = {
        name: Golden(checkpoint, prompts, tmp_path_factory.mktemp(name))
        for name, (checkpoint, prompts) in asked.items()
    }
    folder = tmp_path_factory.mktemp("transformers")
    # An empty environment: no PYTHONPATH that could lead back into the checkout.
    done = subprocess.run(
        [sys.executable, "-P", SCRIPT, *(word for g in goldens.values() for word in g.words)],
        cwd=folder,
        env={"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "HOME": str(folder)},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for golden in goldens.values():
        golden.read()
    return goldens


@pytest.fixture(scope="module", params=SMALL)
def golden(request, goldens) -> Golden:
    return goldens[request.param]


@pytest.fixture(scope="module")
def engine(golden, make_engine):
    return make_engine(model=str(golden.checkpoint), max_total_tokens=16384, chunk_tokens=4096)


class Selections:
    """Compares what each token selects with what `transformers` selected for it.

    Where the two differ, the selection of `transformers` is used, so that logits stay comparable;
    such a row is counted, and must be a near-tie. `swap` makes every row read a wrong selection.
    """

    def __init__(self, golden: Golden, engine, drive) -> None:
        self.golden, self.engine, self.drive = golden, engine, drive
        self.rows = 0
        self.tied: set[tuple[int, int]] = set()
        self.swap = False
        self._index, self._route = engine.model.index, engine.model.route

    def _theirs(self, name: str, width: int) -> torch.Tensor:
        """int32 [T, width], ascending, -1 padded, for the batch at work."""
        parts = []
        for sequence, first, count in self.drive.slices:
            rows = self.golden.selections(self.golden.length_of(sequence.token_ids))[name]
            rows = rows.flip(0) if self.swap and "index" in name else rows
            rows = rows[first : first + count]
            parts.append(torch.nn.functional.pad(rows, (0, width - rows.shape[1]), value=-1))
        rows = torch.cat(parts)
        order = torch.where(rows < 0, 1 << 30, rows).sort(dim=-1).values
        return torch.where(order == 1 << 30, -1, order).int()

    def _count(self, differ: torch.Tensor) -> None:
        owners = [
            (sequence.prompt_tokens, first + offset)
            for sequence, first, count in self.drive.slices
            for offset in range(count)
        ]
        self.tied |= {owners[row] for row in differ.nonzero().flatten().tolist()}
        self.rows = max(self.rows, len(owners))

    def index(self, layer, w, x, latent, *, rotation, batch):
        own = self._index(layer, w, x, latent, rotation=rotation, batch=batch)
        theirs = self._theirs(f"L{layer}.index_topk", own.shape[1])
        differ = (own != theirs).any(dim=-1)
        self._count(differ)
        for row in differ.nonzero().flatten().tolist() if not self.swap else []:
            scores = self._index_scores(layer, w, row, x=x[row], latent=latent[row], batch=batch)
            self._assert_tie(scores, own[row], theirs[row])
        return theirs

    def _index_scores(self, layer, w, row, *, x, latent, batch) -> torch.Tensor:
        a, position = self.engine.architecture, int(batch.positions[row])
        table = self.engine.model.rotary[1]
        q = torch.nn.functional.linear(latent, w.q_b).view(1, a.index_n_heads, -1)
        cos, sin = table.cos[position : position + 1], table.sin[position : position + 1]
        q = self.engine.ops.rope(q, cos, sin, rope_dim=a.rope_dim)[0]
        pages = batch.page_table[batch.token_seq[row].long()]
        keys = self.engine.pools.layers[layer].index_keys.codes[pages.long()].flatten(0, 1)
        keys = keys[: (position + 1) // a.csa_rate]
        weights = w.head_weights @ x * (a.index_head_dim * a.index_n_heads) ** -0.5
        return weights @ torch.relu(q @ keys.T)

    def route(self, layer, x, batch):
        own, weights = self._route(layer, x, batch)
        if self.engine.architecture.hash_layers[layer]:
            return own, weights
        theirs = self._theirs(f"L{layer}.moe_topk", own.shape[1])
        differ = (own.sort(dim=-1).values != theirs).any(dim=-1)
        self._count(differ)
        moe = self.engine.model.weights.layers[layer].moe
        scores = torch.nn.functional.softplus(x @ moe.gate.T).sqrt()
        for row in differ.nonzero().flatten().tolist() if not self.swap else []:
            self._assert_tie(scores[row] + moe.bias, own[row], theirs[row])
            chosen = scores[row][theirs[row].long()]
            own[row] = theirs[row]
            weights[row] = chosen / chosen.sum() * self.engine.architecture.routed_scaling_factor
        return own, weights

    @staticmethod
    def _assert_tie(scores: torch.Tensor, ours: torch.Tensor, theirs: torch.Tensor) -> None:
        either = set(ours.tolist()) ^ set(theirs.tolist())
        assert -1 not in either
        between = scores[sorted(either)]
        assert between.max() - between.min() < 1e-4 * (1 + scores.abs().max())


@pytest.fixture
def drive(golden, engine, driver, monkeypatch):
    """A driver on an engine that remembers nothing; it watches every selection."""
    engine.scheduler.flush_cache()
    drive = driver(engine)
    drive.selections = Selections(golden, engine, drive)
    monkeypatch.setattr(engine.model, "index", drive.selections.index)
    monkeypatch.setattr(engine.model, "route", drive.selections.route)
    yield drive
    for length in golden.prompts:
        tied = [row for row in drive.selections.tied if row[0] == length]
        assert drive.selections.swap or len(tied) <= MAX_TIED_FRAC * length


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, what: str) -> None:
    worst = (ours - theirs).abs().max().item()
    assert worst <= MAX_ABS_ERR, f"{what}: max |dlogit| {worst:.2e} > {MAX_ABS_ERR:.0e}"


@pytest.mark.parametrize("length", LENGTHS)
def test_one_chunk_agrees(golden, drive, length) -> None:
    logits = drive.logits(golden.prompts[length])
    assert drive.selections.rows == length
    assert_close(logits, golden.logits(length), f"{length} tokens at once")


@pytest.mark.parametrize("golden", ["nano"], indirect=True)
def test_the_checkpoint_that_ships_agrees(golden, drive) -> None:
    logits = drive.logits(golden.prompts[NANO_TOKENS], chunk=512)
    assert_close(logits, golden.logits(NANO_TOKENS), "nano in chunks of 512")


def test_another_selection_would_be_seen(golden, engine, drive) -> None:
    drive.selections.swap = True
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


@pytest.mark.parametrize("chunk", [300, 37])
def test_the_plain_torch_ops_agree_too(golden, make_engine, driver, chunk) -> None:
    engine = make_engine(model=str(golden.checkpoint), kernels="torch")
    logits = driver(engine).logits(golden.prompts[300], chunk=chunk)
    assert_close(logits, golden.logits(300), f"torch ops in chunks of {chunk}")


def test_logits_are_no_trivial_match(golden) -> None:
    assert golden.logits(300).std() > 0.3
    assert (golden.logits(300)[:, 0] - golden.logits(300)[:, 1]).std() > 0.1
