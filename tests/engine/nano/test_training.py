import shutil
from contextlib import contextmanager

import torch

from engine.nano.config import NANO, TINY
from engine.nano.export import read_tensors
from engine.nano.gating import gated_torch
from engine.nano.mixture import batch
from engine.nano.mode import FAULTS, Mode
from engine.nano.names import seeded
from engine.nano.optimizer import Optimizer, orthogonalise
from engine.nano.parameters import initial_parameters
from engine.nano.rounding import round_keys
from engine.nano.schedule import LENGTHS, PHASES, SECOND_LENGTHS, Schedule
from engine.nano.sinkhorn import Sinkhorn, sinkhorn_torch
from engine.nano.state import PART_BYTES, load_state
from engine.nano.steps import Steps
from engine.nano.tokens import TOKENIZER_FILE
from engine.nano.trainer import FIRST_CYCLE, Log, TrainConfig, Trainer
from engine.nano.twin import Twin
from engine.nano.weights import Weights

SEED = 5


SHORT_ROWS = Schedule(warm_up=0.0, phases=((0.0, (1.0, 0.0, 0.0, 0.0, 0.0, 0.0)),))


@contextmanager
def trainer(folder, tokenizer_folder, **changes):
    folder.mkdir(exist_ok=True)
    shutil.copy(tokenizer_folder / TOKENIZER_FILE, folder)
    settings = {"preset": "tiny", "steps": 3, "second_steps": 1, "step_tokens": 256, "workers": 1}
    settings |= {"schedule": SHORT_ROWS}
    log = Log(folder / "log.txt")
    yield Trainer(TrainConfig(folder=folder, seed=SEED, **(settings | changes)), log)
    log.close()


def test_steps_learn_one_batch_by_heart(encoder):
    weights = Weights(TINY, initial_parameters(TINY, SEED), torch.float32)
    optimizer = Optimizer(weights, muon_rate=0.02, adam_rate=3e-3)
    steps = Steps(Twin(weights), optimizer, graphs=False)
    rows = batch(seeded("heart"), encoder, 1, 256)
    losses = [
        steps.run(rows, kind, rate=1.0, balance=1e-3, width=8).item()
        for kind in ("dense", "index", "narrow") * 8
    ]
    assert losses[-1] < losses[0] / 2


def test_two_legs_end_near_where_one_leg_ends(tmp_path, tokenizer_folder):
    with trainer(tmp_path / "whole", tokenizer_folder) as whole:
        whole.run_leg()
        assert whole.finished
    with trainer(tmp_path / "legs", tokenizer_folder, leg_seconds=0.0) as first:
        first.run_leg()
        assert not first.finished
    with trainer(tmp_path / "legs", tokenizer_folder) as second:
        assert second.state.step == first.state.step
        second.run_leg()
        assert second.finished
    one, two = read_tensors(tmp_path / "whole"), read_tensors(tmp_path / "legs")
    assert one.keys() == initial_parameters(TINY, 1).keys()
    name = "model.layers.2.self_attn.q_b_proj.weight"
    start = initial_parameters(TINY, SEED)[name]
    assert (one[name] - two[name]).norm() < (one[name] - start).norm() / 4


def test_the_shipped_weights_are_a_mean_of_the_ends_of_both_cycles(tmp_path, tokenizer_folder):
    with trainer(tmp_path, tokenizer_folder, steps=1, second_steps=1) as run:
        run.run_leg()
        shipped, last = read_tensors(tmp_path), run.twin.weights.named()
    first = read_tensors(tmp_path / FIRST_CYCLE)
    name, share = "model.norm.weight", SHORT_ROWS.second_share
    assert not torch.equal(first[name], last[name])
    assert torch.allclose(shipped[name], (1 - share) * first[name] + share * last[name])


def test_the_state_lies_in_parts_that_a_git_host_takes(tmp_path, tokenizer_folder):
    with trainer(tmp_path, tokenizer_folder, steps=1, second_steps=0) as run:
        run.run_leg()
    parts = list((tmp_path / "state").glob("part-*.safetensors"))
    assert parts
    assert all(part.stat().st_size <= PART_BYTES + 2**20 for part in parts)
    loaded = load_state(tmp_path / "state")
    assert loaded is not None
    assert loaded[0].step == 1
    assert loaded[1]["optimizer/count"].item() == 1


def test_sinkhorns_cheap_gradient_is_the_true_one():
    torch.manual_seed(1)
    logits = torch.randn(50, 4, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(50, 4, 4, dtype=torch.float64)
    (true,) = torch.autograd.grad((sinkhorn_torch(logits, 20, 1e-9) * weight).sum(), logits)
    found = Sinkhorn.apply(logits, 20, 1e-9, False)
    (cheap,) = torch.autograd.grad((found * weight).sum(), logits)
    assert ((true - cheap).norm() / true.norm()).item() < 1e-3


def test_orthogonalised_steps_have_singular_values_near_one():
    torch.manual_seed(1)
    for rows, columns in ((64, 32), (32, 64)):
        values = torch.linalg.svdvals(orthogonalise(torch.randn(3, rows, columns)))
        assert values.min() > 0.5
        assert values.max() < 1.4


def test_no_parameter_is_without_an_optimizer():
    weights = Weights(TINY, initial_parameters(TINY, 1), torch.float32)
    optimizer = Optimizer(weights, muon_rate=0.1, adam_rate=0.1)
    assert optimizer.muon.keys() | optimizer.adam.keys() == weights.trainable().keys()
    assert not optimizer.muon.keys() & optimizer.adam.keys()


def test_the_gate_is_clamped_above_only_and_the_value_on_both_sides():
    inner = torch.tensor([[[-30.0, 30.0, -30.0, 30.0]]])
    out = gated_torch(inner, torch.ones(1, 1), 10.0)
    silu = torch.nn.functional.silu
    expected = [(silu(torch.tensor(-30.0)) * -10).item(), (silu(torch.tensor(10.0)) * 10).item()]
    assert torch.allclose(out.flatten(), torch.tensor(expected))


def test_an_outlier_channel_erases_the_others_in_int4_and_not_without_it():
    torch.manual_seed(1)
    keys = torch.randn(20, 64)
    plain, outlier = round_keys(keys, "int4"), round_keys(keys, "outlier256:int4")
    assert ((plain - keys).norm() / keys.norm()).item() < 0.2
    assert (plain[:, 1:] == 0).float().mean().item() < 0.2
    assert (outlier[:, 1:] == 0).float().mean().item() > 0.8
    assert torch.equal(round_keys(keys, "outlier256:bf16"), round_keys(keys, "bf16"))


def test_every_fault_of_the_table_changes_the_logits():
    # an entry late or a swapped epsilon is small, so the start is shaken hard
    values = initial_parameters(TINY, 1)
    generator = torch.Generator().manual_seed(2)
    for name, value in values.items():
        if value.is_floating_point() and value.dim() <= 2 and "proj" not in name:
            values[name] = value + torch.randn(value.shape, generator=generator) * 0.3
    twin = Twin(Weights(TINY, values, torch.float32))
    ids = torch.randint(10, 1280, (1, 512), generator=generator)

    def logits(fault):
        with torch.no_grad():
            return twin.logits(twin.hidden(ids, Mode(topk=8, fault=fault))[0])

    healthy = logits(None)
    silent = [f for f in FAULTS if torch.equal(logits(f), healthy)]
    assert silent == []


def test_lengths_grow_by_loss_or_by_time_and_never_shrink():
    schedule = Schedule()
    assert schedule.phase(0.0, 0) == 0
    assert schedule.phase(0.0, 3) == 3
    assert schedule.phase(0.99, 0) == len(PHASES) - 1
    assert schedule.longest(0) == min(LENGTHS)
    assert schedule.longest(len(PHASES) - 1) == max(LENGTHS)


def test_the_rate_rises_holds_and_falls():
    schedule = Schedule()
    assert schedule.rate(0.01) < 1
    assert schedule.rate(0.2) == 1
    assert schedule.rate(0.999) == schedule.last_rate


def test_the_second_cycle_rises_and_falls_again():
    schedule = Schedule()
    assert schedule.rate(1.2) == schedule.second_rate
    assert schedule.rate(2.0) == schedule.second_rate * schedule.last_rate
    assert schedule.phase(1.5, 0) == len(PHASES) - 1
    assert abs(sum(SECOND_LENGTHS) - 1) < 1e-9


def test_both_presets_have_two_epsilons_and_a_ramp_inside_yarn():
    for config in (NANO, TINY):
        assert config.rms_eps != config.hc_eps
        plain = [
            config.compress_theta ** (-2 * i / config.rope_dim) for i in range(config.rope_dim // 2)
        ]
        shrunk = [f / p for f, p in zip(config.frequencies(compressed=True), plain, strict=True)]
        assert any(1 / config.yarn_factor < s < 1 for s in shrunk)
