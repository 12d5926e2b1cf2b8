import pytest
import torch

from kernels.gpu import indexer_triton as gpu
from kernels.index_keys import IndexKeys, parse_format
from kernels.indexer_triton import index_select
from tests.kernels.interpreted.paged import decode_batch

FORMATS = ("fp32", "bf16", "fp8", "fp8,block", "fp4", "fp4,row", "int4", "int4,block,rotate")


def both(device, text, lengths, heads, topk, randn, *, tie=False, infinite=False, m=4):
    made = []
    dim, entries = 64, max(lengths) // m
    q, weights = randn(len(lengths), heads, dim), randn(len(lengths), heads)
    rows = randn(len(lengths), max(1, entries), dim)
    if tie:
        rows[:, ::2] = rows[:, :1]
        rows[:, 5] = float("nan")
    if infinite:  # each head scores the sixth entry with Inf
        rows[:, 5, 0], q[:, :, 0], weights = float("-inf"), -1.0, weights.abs()
    for place in ("cpu", device):
        batch, pages = decode_batch(lengths, 16, place)
        keys = IndexKeys(parse_format(text, dim))
        storage = keys.allocate(pages, 16 // m, dim, place)
        for row, length in enumerate(lengths):
            count = length // m
            at = torch.arange(count, dtype=torch.int32, device=place)
            keys.store(storage, rows[row, :count].to(place), torch.full_like(at, row), at, m, batch)
        op = index_select if not made else gpu.index_select
        made.append(op(q.to(place), weights.to(place), storage, m=m, topk=topk, batch=batch).cpu())
    return made


@pytest.mark.parametrize("text", FORMATS)
def test_the_kernel_selects_what_its_arithmetic_does(device, randn, text):
    near, far = both(device, text, [300, 3, 77, 41], 5, 11, randn)
    assert torch.equal(near, far)
    assert (near[1] == -1).all()


@pytest.mark.parametrize(("topk", "heads"), [(1, 1), (10, 3), (200, 17)])
def test_ties_and_nan_follow_the_total_order(device, randn, topk, heads):
    near, far = both(device, "fp32", [300, 40], heads, topk, randn, tie=True)
    assert torch.equal(near, far)


@pytest.mark.filterwarnings("ignore:invalid value encountered:RuntimeWarning")  # numpy's 0 x Inf
def test_heads_that_are_padded_make_no_nan_of_an_infinite_score(device, randn):
    near, far = both(device, "bf16", [300, 40], 3, 1, randn, infinite=True)
    assert near.tolist() == far.tolist() == [[5], [5]]
