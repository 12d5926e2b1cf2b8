"""How index keys are rounded and packed: to the bit, against torch's casts and listed values."""

import math

import pytest
import torch

from kernels import PatchUnsupported
from kernels.index_keys import IndexKeys, parse_format, walsh_hadamard

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def keys_of(value, dim=64):
    return IndexKeys(parse_format(value, dim))


def read_back(value, rows):
    """Round, pack into storage, unpack."""
    keys = keys_of(value, rows.shape[1])
    storage = keys.allocate(1, rows.shape[0], rows.shape[1], "cpu")
    codes, scales = keys.round(rows)
    storage.codes[0] = codes
    if scales is not None:
        storage.scales[0] = scales
    return keys.read(storage, torch.arange(rows.shape[0]))


@pytest.mark.parametrize(
    ("value", "bytes_per_key"),
    [
        ("fp32", 256), ("bf16", 128), ("fp8", 64 + 4), ("fp8,block", 64 + 8), ("fp4", 32 + 2),
        ("fp4,row", 32 + 1), ("int4", 32 + 4), ("int4,block", 32 + 8),
    ],
)  # fmt: skip
def test_storage_is_really_packed(value, bytes_per_key):
    storage = keys_of(value).allocate(3, 4, 64, "cpu")
    assert sum(t.numel() * t.element_size() for t in storage.tensors()) == 12 * bytes_per_key
    assert all(t.shape[0] == 3 for t in storage.tensors())


def test_bf16_is_torchs_cast(randn):
    rows = randn(50, 64)
    assert torch.equal(read_back("bf16", rows), rows.bfloat16().float())


@pytest.mark.parametrize(("value", "width"), [("fp8", 64), ("fp8,block", 32)])
def test_fp8_is_torchs_e4m3_cast_of_the_scaled_row(randn, value, width):
    rows = randn(50, 64) * torch.logspace(-3, 3, 50)[:, None]
    groups = rows.view(50, -1, width)
    scale = groups.abs().amax(-1, keepdim=True) / 448
    expected = ((groups / scale).to(torch.float8_e4m3fn).float() * scale).flatten(1)
    assert torch.equal(read_back(value, rows), expected)
    assert torch.equal(
        read_back(value, rows).abs().view(50, -1, width).amax(-1), (448 * scale)[..., 0]
    )


@pytest.mark.parametrize(("value", "width"), [("int4", 64), ("int4,block", 32)])
def test_int4_rounds_half_to_even_between_minus_7_and_7(value, width):
    scaled = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 6.4, 7.0, -7.0] * 8)
    expected = torch.tensor([0.0, 2.0, 2.0, 0.0, -2.0, 6.0, 7.0, -7.0] * 8)
    for scale in (1.0, 0.25, 2.0**40):
        got = read_back(value, (scaled * scale)[None])
        assert torch.equal(got[0], expected * scale)
    assert keys_of(value).round(torch.ones(1, 64))[1].shape == (1, 64 // width)


def nearest_e2m1(x):
    """By enumeration; a tie goes to the even code."""
    distance = [abs(abs(x) - v) for v in E2M1]
    best = [i for i, d in enumerate(distance) if d == min(distance)]
    code = next((i for i in best if i % 2 == 0), best[0])
    return math.copysign(E2M1[code], x)


def test_fp4_rounds_to_the_nearest_listed_value_with_ties_to_even():
    grid = [i / 16 for i in range(-96, 97)]  # holds every tie: .25 .75 1.25 1.75 2.5 3.5 5
    for power in (0, -20, 30):
        for first in range(0, len(grid) - 31, 32):
            row = [6.0, *grid[first : first + 31]]
            got = read_back("fp4", torch.tensor([row]) * 2.0**power)[0] / 2.0**power
            assert got.tolist() == [nearest_e2m1(x) for x in row]


@pytest.mark.parametrize(
    ("amax", "scale"), [(6.0, 1.0), (6.001, 2.0), (3.0, 0.5), (5.9, 1.0), (12.0, 2.0), (2.9, 0.5)]
)
def test_fp4_scales_are_the_smallest_power_of_two_that_covers(amax, scale):
    row = torch.zeros(1, 32)
    row[0, 5] = amax
    _, scales = keys_of("fp4", 32).round(row)
    assert scales.dtype == torch.uint8
    assert 2.0 ** (int(scales[0, 0]) - 127) == scale


@pytest.mark.parametrize("value", ["fp8", "fp4", "int4", "int4,block,rotate"])
def test_zero_tiny_and_broken_rows(value):
    rows = torch.zeros(4, 64)
    rows[1] = 1e-38
    rows[2, 40] = float("nan")
    rows[3, 40] = float("inf")
    back = read_back(value, rows)
    assert torch.equal(back[0], torch.zeros(64))
    assert back[1].abs().max() <= 1e-29  # below every scale: nothing, or nearly
    assert back[2:, 32:].isnan().all()  # at least the block that was hit
    clean = 0 if "block" in value or value == "fp4" else 2
    if value == "fp4":
        assert torch.equal(back[2:, :32], torch.zeros(2, 32))
    elif clean:
        assert back[2:].isnan().all()


def test_the_rotation_is_orthonormal_symmetric_and_its_own_inverse(randn):
    matrix = walsh_hadamard(torch.eye(64))
    torch.testing.assert_close(matrix @ matrix.T, torch.eye(64))
    assert torch.equal(matrix, matrix.T)
    assert set(matrix.flatten().tolist()) == {0.125, -0.125}
    x = randn(7, 3, 64)
    torch.testing.assert_close(walsh_hadamard(walsh_hadamard(x)), x)


def test_rotation_in_c_has_the_bits_of_the_definition(randn):
    from kernels.native.build import load_library
    from kernels.native.library import declare

    for dim in (1, 2, 8, 64, 128):
        x, out = randn(5, dim), torch.empty(5, dim)
        declare(load_library()).k_walsh_hadamard(x.data_ptr(), 5, dim, dim**-0.5, out.data_ptr())
        assert torch.equal(out, walsh_hadamard(x))


def test_rotation_changes_no_product_and_spreads_an_outlier(randn):
    q, k = randn(20, 64), randn(20, 64)
    k[:, 0] *= 256
    q[:, 0] /= 256
    exact = (q * k).sum(-1)
    turned = (walsh_hadamard(q) * read_back("int4,rotate", k)).sum(-1)
    flat = (q * read_back("int4", k)).sum(-1)
    torch.testing.assert_close(
        (walsh_hadamard(q) * walsh_hadamard(k)).sum(-1), exact, rtol=1e-3, atol=1e-3
    )
    assert (read_back("int4", k)[:, 1:] == 0).float().mean() > 0.95  # all but the outlier is gone
    assert (turned - exact).abs().mean() != (flat - exact).abs().mean()


def test_native_and_torch_store_the_same_bytes(bound, ragged, randn):
    for value in ("fp32", "bf16", "fp8", "fp4", "int4", "int4,block,rotate", "fp32,rotate"):
        layout = ragged.scattered([64], 16)
        keys, batch = randn(16, 32), layout.batch([(0, 0, 64)])
        at = (torch.zeros(16, dtype=torch.int32), torch.arange(16, dtype=torch.int32))
        stored = []
        for implementation in ("native", "torch"):
            ops = bound(implementation, f"index_keys={value}")
            storage = ops.index_keys.allocate(layout.pages, 4, 32, "cpu")
            ops.index_keys.store(storage, keys, *at, 4, batch)
            stored.append([t.view(torch.uint8) for t in storage.tensors()])
        assert all(torch.equal(a, b) for a, b in zip(*stored, strict=True))


@pytest.mark.parametrize(
    ("value", "dim", "words"),
    [
        ("int3", 64, "format 'int3'; accepted: fp32, bf16, fp8, fp4, int4"),
        ("", 64, "format ''"),
        ("int4,row,block", 64, "row or block"),
        ("int4,colum", 64, "options 'colum'"),
        ("int4,row,row", 64, "options"),
        ("bf16,row", 64, "bf16 has no scale"),
        ("int4,rotate", 48, "rotate needs 2\\^n channels, not 48"),
        ("fp4", 40, "block scales and 40 channels do not fit"),
        ("int4", 33, "row scales and 33 channels do not fit"),
    ],
)
def test_unsupported_values_are_refused_in_words(value, dim, words):
    with pytest.raises(PatchUnsupported, match=words):
        parse_format(value, dim)


@pytest.mark.parametrize("value", ["fp32", "bf16,rotate", "fp8", "fp4,row,rotate", "int4,block"])
def test_a_format_says_itself_as_it_is_written(value):
    text = parse_format(value, 64).text()
    assert parse_format(text, 64) == parse_format(value, 64)
