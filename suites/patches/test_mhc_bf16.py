"""Hyper-connection mixing in bf16: its product, RMS, gates and Sinkhorn.

Claim: the candidate errs at most twice as much as plain torch on streams and weights rounded to
  bf16, also after 61 layers, where that rounding grows no faster than bf16's; the logits of a
  checkpoint stay within .05 nats.
Why it breaks in practice: it runs in every layer, often without a toggle, and a transposed comb,
  a dropped tail of channels or a missing iteration still gives fluent text.
A failure means: the kernel computes something else, or bf16 is not enough for these weights.
Cost: about 10 s on one core.
Needs: nothing but this package; a GPU with --fidelity-device=cuda.
"""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fidelity.tensors import Case, Op, Stack
from kernels.baseline import mhc as plain
from reference import mhc as reference
from suites.patches.binding import bound, bound_without, on_cpu
from suites.patches.checkpoint import Checkpoint
from suites.patches.declared import declared
from suites.patches.examination import Examination
from suites.patches.harvest import Harvest
from suites.patches.harvested_inputs import mixing_cases
from suites.patches.synthetic import bf16, head, normal, rms, structured

EPS = {"rms_eps": 1e-6, "hc_eps": 1e-4}
ITERS = 20
FORMATS = {"fn": bf16}
KEEP = ("fn", "base", "scale")
TOKENS, STREAMS, HIDDEN = 21, 4, 200  # no multiple of a block
WIDTH = 7168
"""Of DeepSeek-V4-Pro's streams."""


def parameters(generator: torch.Generator, n: int, hidden: int) -> dict[str, Tensor]:
    """Weights as trained ones are spread: small mixing, comb near the identity."""
    rows = (2 + n) * n
    base = normal(generator, rows) * 0.5
    base[2 * n :] += 2.5 * torch.eye(n).flatten()
    return {
        "fn": normal(generator, rows, n * hidden) * (n * hidden) ** -0.5,
        "base": base,
        "scale": normal(generator, 3) * 0.3 + 1,
    }


def case(name: str, streams: Tensor, generator: torch.Generator, iters: int = ITERS) -> Case:
    """One call; the streams are bf16 values, as they are in the stack."""
    given_ = parameters(generator, streams.shape[1], streams.shape[2])
    return Case(name, {"streams": bf16(streams), **given_, **EPS, "iters": iters})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_synthetic_streams(examination: Examination, dtype: torch.dtype) -> None:
    """Noise, outliers, sparse and equal rows, all sizes; NaN and Inf; poisoned outputs."""
    ops, generator = bound(examination), examination.generator()
    cases = [
        case(name, rows.view(TOKENS, STREAMS, HIDDEN), generator)
        for name, rows in structured(generator, TOKENS, STREAMS * HIDDEN)
    ]
    examination.patch(
        ops.mhc_pre,
        plain.mhc_pre,
        reference.mhc_pre,
        cases,
        dtype=dtype,
        formats=FORMATS,
        keep=KEEP,
        row_inputs=("streams",),
        special=("streams",),
        calls=lambda: ops.calls["patch.mhc_bf16"],
    )


def test_width_of_the_large_model(examination: Examination) -> None:
    """28,672 channels: what a long sum loses shows nowhere else."""
    generator = examination.generator()
    examination.patch(
        bound(examination).mhc_pre,
        plain.mhc_pre,
        reference.mhc_pre,
        case("width 7168", normal(generator, TOKENS, STREAMS, WIDTH), generator),
        dtype=torch.float32,
        formats=FORMATS,
        keep=KEEP,
    )


def test_weights_of_the_checkpoint(examination: Examination, checkpoint: Checkpoint) -> None:
    """Both sites of the first, the middle and the last layer, on synthetic streams."""
    ops, generator, c = bound(examination), examination.generator(), checkpoint.config
    layers = len(c.layer_kinds)
    cases = [
        Case(
            f"layer {layer}, {site}",
            {
                "streams": bf16(normal(generator, TOKENS, c.hc_mult, c.hidden_size)),
                **{
                    part: checkpoint.tensor(f"model.layers.{layer}.{site}.{part}")
                    for part in ("fn", "base", "scale")
                },
                "rms_eps": c.rms_norm_eps,
                "hc_eps": c.hc_eps,
                "iters": c.hc_sinkhorn_iters,
            },
        )
        for layer in sorted({0, layers // 2, layers - 1})
        for site in ("attn_hc", "ffn_hc")
    ]
    examination.patch(
        ops.mhc_pre,
        plain.mhc_pre,
        reference.mhc_pre,
        cases,
        dtype=torch.float32,
        formats=FORMATS,
        keep=KEEP,
        data=f"synthetic streams on weights of {checkpoint.folder.name}",
    )


@given(
    tokens=st.integers(1, 40),
    n=st.integers(1, 8),
    hidden=st.integers(1, 150),
    iters=st.sampled_from([1, 2, 20]),
)
def test_irregular_shapes(
    examination: Examination, tokens: int, n: int, hidden: int, iters: int
) -> None:
    """Any number of tokens, streams and channels."""
    generator = examination.generator()
    one = case(f"{tokens}x{n}x{hidden}", normal(generator, tokens, n, hidden), generator, iters)
    examination.patch(
        bound(examination).mhc_pre,
        plain.mhc_pre,
        reference.mhc_pre,
        one,
        dtype=torch.float32,
        formats=FORMATS,
        keep=KEEP,
        must_differ=False,
    )


def test_compounding(examination: Examination) -> None:
    """21, 43 and 61 layers of mixing around a sublayer: near the format's maths, and no growth."""
    generator = examination.generator()
    tokens, hidden = 32, 64
    layers = [parameters(generator, STREAMS, hidden) for _ in range(61)]
    sublayers = [normal(generator, hidden, hidden) * hidden**-0.5 for _ in range(61)]

    def step(op: Op, x: Tensor, layer: int) -> Tensor:
        weights = {name: value.to(x.device) for name, value in layers[layer].items()}
        y, post, comb = op(streams=bf16(x), **weights, **EPS, iters=ITERS)
        f = torch.tanh(rms(y) @ sublayers[layer].to(x.device))
        mixed = torch.einsum("tjk,tjh->tkh", comb, x)
        return post[:, :, None] * f[:, None, :] + mixed  # type: ignore[no-any-return]

    start = bf16(normal(generator, tokens, 1, hidden)).expand(-1, STREAMS, -1).contiguous()
    examination.compounding(
        bound(examination).mhc_pre,
        reference.mhc_pre,
        Stack(step=step, start=start, head=head(generator, 256, STREAMS * hidden)),
        declared=declared(reference.mhc_pre, plain.mhc_pre, formats=FORMATS),
    )


def test_whole_model(examination: Examination) -> None:
    """Every mixing of a checkpoint in bf16: KL at the logits."""
    examination.whole_model(mhc_pre=on_cpu(examination, bound(examination).mhc_pre))


def test_harvested_streams(harvested: Examination, harvest: Harvest) -> None:
    """Streams of a running engine at every site, on its weights; its text at the logits."""
    ops, opening = bound(harvested), harvest.opening()
    harvested.patch(
        ops.mhc_pre,
        plain.mhc_pre,
        reference.mhc_pre,
        mixing_cases(harvest),
        dtype=torch.float32,
        formats=FORMATS,
        keep=KEEP,
        calls=lambda: ops.calls["patch.mhc_bf16"],
    )
    harvested.whole_model(opening, mhc_pre=on_cpu(harvested, ops.mhc_pre))


def test_it_runs_only_where_it_is_on(examination: Examination) -> None:
    """Its counter moves with the patch on, and there is none with it off."""
    examination.ran(bound(examination), bound_without(examination), "mhc_pre")
