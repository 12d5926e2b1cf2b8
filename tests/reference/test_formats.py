"""Every rounding against torch's own casts and against enumerated tables."""

import itertools

import pytest
import torch

from reference import grids
from reference.formats import (
    dequantise_mxfp4,
    dequantise_nvfp4,
    quantise_fp8,
    quantise_int4,
    quantise_mxfp4,
    quantise_nvfp4,
    round_fp8,
    round_fp8_tiles,
    round_int4,
    round_mxfp4,
    round_nvfp4,
)
from reference.fp8_kv import round_kv_rows
from reference.index_keys import round_keys

# Every 617th float32: all exponents, both signs, denormals, Inf and NaN, about 7 million values.
EVERY_KIND = torch.arange(-(2**31), 2**31, 617).to(torch.int32).view(torch.float32)
FP4 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
NAN, INF = torch.nan, torch.inf


def same_bits(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Equal values and equal signs of zero; NaN equals NaN."""
    both_nan = ours.isnan() & theirs.isnan()
    return bool((both_nan | (ours.view(torch.int32) == theirs.view(torch.int32))).all())


class TestE4m3:
    def test_equals_torchs_cast_bit_for_bit(self) -> None:
        theirs = EVERY_KIND.to(torch.float8_e4m3fn).float()
        saturates = torch.tensor([1e9]).to(torch.float8_e4m3fn).float().item() == 448.0
        ours = grids.round_e4m3(EVERY_KIND, overflow="saturate" if saturates else "nan")
        assert same_bits(ours, theirs)

    def test_every_code_is_a_fixed_point_and_ties_go_to_even(self) -> None:
        codes = torch.arange(127, dtype=torch.uint8).view(torch.float8_e4m3fn).float()
        assert same_bits(grids.round_e4m3(codes), codes)
        middles = (codes[:-1] + codes[1:]) / 2
        even = torch.where(torch.arange(126) % 2 == 0, codes[:-1], codes[1:])
        assert same_bits(grids.round_e4m3(middles), even)
        assert same_bits(grids.round_e4m3(-middles), -even)

    def test_overflow_saturates_or_is_nan(self) -> None:
        x = torch.tensor([464.0, 465.0, -INF, NAN])
        assert grids.round_e4m3(x)[:3].tolist() == [448.0, 448.0, -448.0]
        assert grids.round_e4m3(x).isnan().tolist() == [False, False, False, True]
        kept = grids.round_e4m3(x, overflow="nan")
        assert kept[0] == 448.0
        assert kept.isnan().tolist() == [False, True, True, True]
        with pytest.raises(ValueError, match="overflow: clip"):
            grids.round_e4m3(x, overflow="clip")

    def test_smallest_denormal(self) -> None:
        x = torch.tensor([2.0**-9, 2.0**-10, 2.0**-10 * 1.001, -(2.0**-11)])
        assert same_bits(grids.round_e4m3(x), torch.tensor([2.0**-9, 0.0, 2.0**-9, -0.0]))


class TestFp4:
    def test_every_value_between_and_beside_the_codes(self) -> None:
        steps = torch.arange(-80, 81) / 10 + 0.0
        steps = torch.cat((steps, torch.tensor([-INF, INF])))
        for x in steps.tolist():
            near = min(FP4, key=lambda v: abs(v - min(abs(x), 6.0)))
            tied = [v for v in FP4 if abs(v - min(abs(x), 6.0)) == abs(near - min(abs(x), 6.0))]
            wanted = next(v for v in tied if FP4.index(v) % 2 == 0) if len(tied) > 1 else near
            assert grids.round_e2m1(torch.tensor([x])).abs().item() == wanted, x

    def test_ties_go_to_the_even_code(self) -> None:
        ties = torch.tensor([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5.0])
        wanted = torch.tensor([0.0, 1.0, 1.0, 2.0, 2.0, 4.0, 4.0])
        assert same_bits(grids.round_e2m1(ties), wanted)
        assert same_bits(grids.round_e2m1(-ties), -wanted)

    def test_codes_there_and_back(self) -> None:
        codes = torch.arange(16, dtype=torch.uint8)
        values = grids.decode_e2m1(codes)
        assert values.tolist() == [*FP4, *(-v for v in FP4)]
        assert grids.encode_e2m1(values).tolist() == codes.tolist()
        with pytest.raises(ValueError, match="a NaN"):
            grids.encode_e2m1(torch.tensor([NAN]))

    def test_the_even_index_lies_in_the_low_half(self) -> None:
        codes = torch.tensor([[1, 2, 15, 0]], dtype=torch.uint8)
        packed = grids.pack_nibbles(codes)
        assert packed.tolist() == [[0x21, 0x0F]]
        assert grids.unpack_nibbles(packed).tolist() == codes.tolist()
        assert grids.unpack_nibbles(packed.view(torch.int8)).tolist() == codes.tolist()
        with pytest.raises(ValueError, match="3 columns"):
            grids.pack_nibbles(codes[:, :3])


class TestE8m0:
    def test_nearest_equals_torchs_cast_on_normal_numbers(self) -> None:
        x = EVERY_KIND[EVERY_KIND.abs() >= 2.0**-126]
        theirs = x.to(torch.float8_e8m0fnu).view(torch.uint8)
        assert torch.equal(grids.encode_e8m0(x, rule="nearest"), theirs)
        rest = torch.tensor([0.0, INF, NAN])
        theirs = rest.to(torch.float8_e8m0fnu).view(torch.uint8)
        assert torch.equal(grids.encode_e8m0(rest, rule="nearest"), theirs)

    def test_every_byte_reads_back_as_torch_reads_it(self) -> None:
        codes = torch.arange(256).to(torch.uint8)
        assert same_bits(grids.decode_e8m0(codes), codes.view(torch.float8_e8m0fnu).float())
        for rule in ("up", "down", "nearest"):
            assert torch.equal(grids.encode_e8m0(grids.decode_e8m0(codes), rule=rule), codes)

    def test_up_and_down(self) -> None:
        x = torch.tensor([1.0, 1.0001, 1.9999, 2.0, 0.75, 0.0])
        assert grids.encode_e8m0(x, rule="up").tolist() == [127, 128, 128, 128, 127, 0]
        assert grids.encode_e8m0(x, rule="down").tolist() == [127, 127, 127, 128, 126, 0]
        with pytest.raises(ValueError, match="rule"):
            grids.encode_e8m0(x, rule="sideways")


class TestBf16AndInt4:
    def test_bf16_equals_torchs_cast_bit_for_bit(self) -> None:
        assert same_bits(grids.round_bf16(EVERY_KIND), EVERY_KIND.bfloat16().float())

    def test_int4_ties_go_to_even_and_saturate(self) -> None:
        x = torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5, 7.4, 7.6, -90.0, INF])
        assert grids.encode_int4(x).tolist() == [0, 2, 2, 0, -2, 7, 7, -7, 7]
        with pytest.raises(ValueError, match="a NaN"):
            grids.encode_int4(torch.tensor([NAN]))


class TestBlocks:
    def test_fp8_scales_the_largest_to_448(self) -> None:
        x = torch.tensor([[896.0, -2.0, 1.0, 0.0]])
        codes, scales = quantise_fp8(x, block=2)
        assert torch.equal(scales, torch.tensor([[2.0, 1 / 448]]))
        assert codes.tolist() == [[448.0, -1.0, 448.0, 0.0]]
        assert round_fp8(x, block=2).tolist() == x.tolist()

    def test_fp8_power_of_two_scales_are_not_below_the_need(self) -> None:
        _, scales = quantise_fp8(torch.tensor([[448.0], [449.0], [447.0]]), block=1, scale="e8m0")
        assert scales.flatten().tolist() == [1.0, 2.0, 1.0]

    def test_fp8_tiles_scale_each_square(self) -> None:
        weight = torch.ones(3, 3)
        weight[2, 2] = 448 * 2.0**20
        rounded = round_fp8_tiles(weight, tile=2)
        assert torch.equal(rounded, weight)
        assert round_fp8_tiles(weight, tile=3)[0, 0] == 0.0

    def test_mxfp4_by_hand(self) -> None:
        x = torch.tensor([[12.0, 5.0, -2.4, 0.4] + [0.0] * 28])  # amax 12: scale 2
        packed, scale_bytes = quantise_mxfp4(x)
        assert scale_bytes.tolist() == [[128]]
        # 6; 2.5 -> 2 (tie to even); -1.2 -> -1; .2 -> 0
        assert round_mxfp4(x)[0, :4].tolist() == [12.0, 4.0, -2.0, 0.0]
        assert packed[0, :2].tolist() == [0x47, 0x0A]

    def test_mxfp4_enumerated(self) -> None:
        """Every code under every scale reads back as itself: the grid is the product of both."""
        for exponent in (-120, -30, 0, 1, 30, 120):
            x = torch.tensor([*FP4, *(-v for v in FP4)] * 2) * 2.0**exponent
            assert torch.equal(round_mxfp4(x[None])[0], x)

    def test_nvfp4_by_hand(self) -> None:
        x = torch.zeros(1, 32)
        x[0, 0], x[0, 1], x[0, 16], x[0, 17] = 6.0 * 448, 448.0, 6.0 * 3.3, 3.0
        packed, scales, tensor_scale = quantise_nvfp4(x)
        assert tensor_scale == 1.0
        assert scales.tolist() == [[448.0, 3.25]]  # 3.3 rounds to 3.25 in e4m3: steps of 1/4
        values = dequantise_nvfp4(packed, scales, tensor_scale)
        assert values[0, [0, 1, 16, 17]].tolist() == [2688.0, 448.0, 19.5, 3.25]
        stored = scales.to(torch.float8_e4m3fn)
        assert torch.equal(dequantise_nvfp4(packed, stored, tensor_scale), values)

    def test_nvfp4_scale_that_rounds_to_zero_holds_zeros(self) -> None:
        x = torch.zeros(1, 32)
        x[0, 0], x[0, 16] = 1.0, 1e-7
        assert round_nvfp4(x)[0, 16] == 0.0

    def test_int4_by_hand(self) -> None:
        x = torch.tensor([[7.0, 1.5, -2.5, 0.4, 70.0, 4.0, 0.0, -70.0]])
        codes, scales = quantise_int4(x, block=4)
        assert scales.tolist() == [[1.0, 10.0]]
        assert codes.tolist() == [[7, 2, -2, 0, 7, 0, 0, -7]]
        # One scale for the row: the outlier erases its neighbours.
        assert round_int4(x, block=None).tolist() == [[10.0, 0, 0, 0, 70, 0, 0, -70]]

    FORMATS = {  # noqa: RUF012
        "fp8": lambda x: round_fp8(x, block=32),
        "fp8 e8m0": lambda x: round_fp8(x, block=32, scale="e8m0"),
        "mxfp4": round_mxfp4,
        "nvfp4": round_nvfp4,
        "int4": lambda x: round_int4(x, block=32),
    }

    @pytest.mark.parametrize("form", FORMATS)
    def test_zeros_stay_and_what_is_not_finite_makes_its_block_nan(self, form) -> None:
        rounded = self.FORMATS[form](torch.zeros(2, 64))
        assert (rounded == 0).all()
        for bad in (NAN, INF, -INF):
            x = torch.ones(1, 64)
            x[0, 3] = bad
            rounded = self.FORMATS[form](x)
            width = 16 if form == "nvfp4" else 32
            assert rounded[0, :width].isnan().all()
            assert (rounded[0, width:] - 1).abs().max() < 0.2

    @pytest.mark.parametrize("form", FORMATS)
    def test_error_is_that_of_the_format(self, form) -> None:
        x = torch.randn(400, 64, generator=torch.Generator().manual_seed(1))
        error = ((self.FORMATS[form](x) - x).square().mean() / x.square().mean()).sqrt().item()
        low, high = {"fp8": (0.02, 0.03), "fp8 e8m0": (0.02, 0.03)}.get(form, (0.07, 0.13))
        assert low < error < high

    @pytest.mark.parametrize("form", FORMATS)
    def test_rounding_twice_changes_nothing_more(self, form) -> None:
        once = self.FORMATS[form](torch.randn(50, 64, generator=torch.Generator().manual_seed(2)))
        torch.testing.assert_close(self.FORMATS[form](once), once, rtol=1e-6, atol=0)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
    @pytest.mark.parametrize("form", FORMATS)
    def test_a_gpu_rounds_as_the_cpu_does(self, form) -> None:
        """With a reciprocal instead of a division, values on a tie go the other way."""
        noise = torch.randn(2000, 64, generator=torch.Generator().manual_seed(3))
        x = noise.bfloat16().float()  # short values, so that many lie on a tie
        assert torch.equal(self.FORMATS[form](x.cuda()).cpu(), self.FORMATS[form](x))

    def test_refuses_blocks_that_do_not_divide(self) -> None:
        with pytest.raises(ValueError, match="block: 32 for 48 channels"):
            round_mxfp4(torch.ones(1, 48))
        with pytest.raises(ValueError, match="scale: e5m2"):
            quantise_fp8(torch.ones(1, 2), block=None, scale="e5m2")

    def test_unpacking_reads_scales_of_any_block(self) -> None:
        packed = torch.full((1, 16), 0x22, dtype=torch.uint8)  # 32 codes of value 1
        for count in (1, 2, 4):
            scale_bytes = torch.arange(127, 127 + count).to(torch.uint8)[None]
            values = dequantise_mxfp4(packed, scale_bytes)
            assert values.view(count, -1)[:, 0].tolist() == [2.0**i for i in range(count)]


class TestPatchFormats:
    def test_kv_rows_keep_their_rotated_tail_in_bf16(self) -> None:
        rows = torch.tensor([[448.0, 1.03, 3.0, 101.0, 1.001, 1.006]])
        rounded = round_kv_rows(rows, rope_dim=2, block=2)
        # e4m3: steps of 1/8 above 1 and of 8 / 4 = 2 at 101 / 2^-2 = 404 (steps of 32 there: 8).
        assert rounded[0, :4].tolist() == [448.0, 1.0, 3.0, 104.0]
        assert rounded[0, 4:].tolist() == [1.0, 1.0078125]  # bf16: steps of 1/128

    def test_index_keys_in_every_format(self) -> None:
        keys = torch.randn(9, 64, generator=torch.Generator().manual_seed(3))
        keys[0, 0] = 256.0
        for form, scale, rotate in itertools.product(
            ("fp8", "fp4", "int4"), ("row", "block"), (False, True)
        ):
            rounded = round_keys(keys, form, scale=scale, rotate=rotate)
            assert rounded.shape == keys.shape
            assert not torch.equal(rounded, keys)
        assert torch.equal(round_keys(keys, "fp32"), keys)
        assert torch.equal(round_keys(keys, "bf16"), keys.bfloat16().float())
        assert (round_keys(keys, "int4", scale="row")[0, 1:] == 0).all()
        assert (round_keys(keys, "int4", scale="block")[0, 32:] != 0).any()
        with pytest.raises(ValueError, match="int3 with scale row"):
            round_keys(keys, "int3", scale="row")
        with pytest.raises(ValueError, match="scale: none"):
            round_keys(keys, "fp8")
