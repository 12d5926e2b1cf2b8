"""The Triton kernels against the same arithmetic in torch: interpreted here, compiled on a GPU."""

import os

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
if not (INTERPRETED or torch.cuda.is_available()):
    collect_ignore_glob = ["test_*.py"]


@pytest.fixture(scope="session")
def device() -> str:
    torch.set_num_threads(1)
    return "cpu" if INTERPRETED else "cuda"


@pytest.fixture
def randn():
    """Standard normal tensors, the same at each run."""
    generator = torch.Generator().manual_seed(20)
    return lambda *shape: torch.randn(*shape, generator=generator)


@pytest.fixture
def agree(device):
    """Call a kernel on the device and its torch form on the CPU; hold their outputs together."""

    def check(kernel, torch_form, *args, tolerance=2e-6, **options):
        def there(value):
            return value.to(device) if isinstance(value, torch.Tensor) else value

        near = torch_form(*args, **options)
        far = kernel(*map(there, args), **{k: there(v) for k, v in options.items()})
        near, far = ((x,) if isinstance(x, torch.Tensor) else x for x in (near, far))
        for a, b in zip(near, far, strict=True):
            assert a.dtype is b.dtype
            torch.testing.assert_close(b.cpu(), a, rtol=tolerance, atol=tolerance, equal_nan=True)
        return near

    return check
