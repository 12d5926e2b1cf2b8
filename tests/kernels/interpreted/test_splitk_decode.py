import pytest
import torch

from kernels.fp8_rows import pack
from kernels.gpu import splitk_decode as gpu
from kernels.splitk_decode import splitk_decode
from tests.kernels.interpreted.paged import NAN, decode_batch, filled


def both(
    device,
    lengths,
    heads,
    dim,
    *,
    window,
    m,
    topk,
    randn,
    page_size=16,
    rope=None,
    dtype=torch.float32,
):
    """The torch form on the CPU, and the kernel on the device."""
    made = []
    longest = max(lengths)
    kv, entries = (
        randn(len(lengths), longest, dim),
        randn(len(lengths), longest // (m or 1) + 1, dim),
    )
    q, sinks = randn(len(lengths), heads, dim), randn(heads)
    for place in ("cpu", device):
        batch, pages = decode_batch(lengths, page_size, place)
        for row, length in enumerate(lengths):
            kv[row, length:] = NAN
            if m:
                entries[row, length // m :] = NAN
        pool = filled(pages, page_size, batch.page_table, kv).to(place)
        more = filled(pages, page_size // m, batch.page_table, entries).to(place) if m else None
        if rope is not None:
            pool, more = (
                None if rows is None else pack(rows.to(dtype), rope_dim=rope, block=16)
                for rows in (pool, more)
            )
        picks = None
        if topk:
            picks = torch.stack([torch.arange(topk) * 3 % (longest // m + 2) for _ in lengths])
            picks[:, ::5] = -1
            picks = picks.int().to(place)
        op = gpu.splitk_decode if made else splitk_decode
        options = {"window": window, "m": m, "scale": 0.3, "batch": batch}
        made.append(op(q.to(place), pool, more, picks, sinks.to(place), **options).cpu())
    return made


@pytest.mark.parametrize(
    ("lengths", "heads", "dim", "window", "m", "topk"),
    [
        ([1, 37, 100], 3, 24, 20, 4, 30),
        ([64, 65, 5], 17, 32, 64, 4, 0),
        ([3, 90], 2, 40, 70, None, 0),
        ([150, 4, 129], 4, 16, 8, 8, 0),
    ],
)
def test_the_kernel_is_its_arithmetic(device, randn, lengths, heads, dim, window, m, topk):
    near, far = both(device, lengths, heads, dim, window=window, m=m, topk=topk, randn=randn)
    assert near.isfinite().all()
    torch.testing.assert_close(far, near, rtol=3e-3, atol=1e-3)  # a weight may round to the other
    assert float((far - near).norm() / near.norm()) < 2e-5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rope", "m", "topk"), [(8, 4, 30), (0, None, 0), (24, 16, 0)])
def test_packed_rows_are_read_as_they_were_written(device, randn, rope, m, topk, dtype):
    near, far = both(
        device,
        [1, 37, 100],
        3,
        32 + rope,
        window=20,
        m=m,
        topk=topk,
        randn=randn,
        rope=rope,
        dtype=dtype,
    )
    assert near.isfinite().all()
    torch.testing.assert_close(far, near, rtol=3e-3, atol=1e-3)
    assert float((far - near).norm() / near.norm()) < 2e-5
