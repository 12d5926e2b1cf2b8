"""The same engine on a GPU; skipped where there is none."""

import pytest
import torch

from engine.sequence import SamplingParams

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

GREEDY = SamplingParams(max_tokens=16, temperature=0.0, ignore_eos=True, logprobs=2)


def prompt(length: int, vocab: int = 199) -> list[int]:
    g = torch.Generator().manual_seed(length)
    return torch.randint(2, vocab, (length,), generator=g).tolist()


@pytest.mark.parametrize("model", ["tiny", "nano"])
def test_logits_agree_with_the_cpu(
    make_engine, driver, nano_checkpoint, tiny_checkpoint, model
) -> None:
    folder = str(nano_checkpoint if model == "nano" else tiny_checkpoint)
    # Below index_topk entries a near-tie cannot change what is read.
    length = 100 if model == "nano" else 44
    host = driver(make_engine(model=folder, kernels="torch")).logits(prompt(length), chunk=19)
    engine = make_engine(model=folder, device="cuda")
    device = driver(engine).logits(prompt(length), chunk=19)
    assert (host - device.cpu()).abs().max() < 5e-4


def test_a_batch_under_pressure_answers_like_each_request_alone(make_engine, poison) -> None:
    engine = make_engine(device="cuda", max_total_tokens=64 * 8, chunk_tokens=70)
    poison(engine)
    prompts = [prompt(n) for n in (5, 64, 130, 200)]
    long = SamplingParams(max_tokens=80, temperature=0.0, ignore_eos=True)
    results = engine.generate(prompts, long)
    engine.scheduler.check_integrity()
    alone = make_engine(device="cuda", disable_prefix_cache=True)
    for token_ids, outputs in zip(prompts, results, strict=True):
        (expected,) = alone.generate([token_ids], long)
        assert [o.new_token_ids for o in outputs] == [o.new_token_ids for o in expected]


def test_a_prefix_hit_equals_a_cold_run_to_the_bit(make_engine, driver) -> None:
    engine = make_engine(device="cuda")
    drive = driver(engine)
    cold = drive.logits(prompt(300), chunk=192)
    hit = drive.open(prompt(300))
    assert hit.num_computed == 256
    rows = drive.step((hit, 44))[0]
    again = drive.logits(prompt(300)[:256] + prompt(44), chunk=44)
    assert again.shape[0] == 44
    assert torch.allclose(rows, cold[256:], atol=5e-4)
    second = drive.open(prompt(300))
    assert torch.equal(drive.step((second, 44))[0], rows)


def test_given_text_is_scored_like_generated_text(make_engine) -> None:
    engine = make_engine(device="cuda")
    (outputs,) = engine.generate([prompt(70)], GREEDY)
    generated = [t for o in outputs for t in o.new_token_ids]
    decode = [score.logprob for o in outputs for score in o.logprobs]
    (given,) = engine.generate(
        [prompt(70) + generated], SamplingParams(max_tokens=0, prompt_logprobs=0)
    )
    prefill = [score.logprob for score in given[0].prompt_logprobs[70:]]
    assert decode == pytest.approx(prefill, abs=5e-4)


def test_random_draws_do_not_depend_on_the_device(make_engine) -> None:
    sampling = SamplingParams(max_tokens=30, temperature=0.8, seed=5, ignore_eos=True)
    answers = [
        [
            t
            for o in make_engine(kernels="torch", device=device).generate([prompt(50)], sampling)[0]
            for t in o.new_token_ids
        ]
        for device in ("cpu", "cuda")
    ]
    assert answers[0] == answers[1]
