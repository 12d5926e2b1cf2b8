"""A user's own repository: one torch patch, its `assert_patch` test, a fidelity.toml, and git."""

import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

PATCH = "fast_norm"
KERNEL = "stack/fast_norm.py"
MICROTEST = "checks/test_fast_norm.py"

FILES = {
    "fidelity.toml": """\
[[patch]]
name = "fast_norm"
files = ["stack/fast_*.py"]
phase = "both"
microtest = "checks/test_fast_norm.py"

[gate]
watch = ["stack/**/*.py"]
shared = ["stack/layout.py"]
microtest_s = 120
""",
    "README.md": "# A stack with one speed patch\n",
    "stack/layout.py": "ROWS = 16\n",
    KERNEL: '''\
"""RMSNorm that multiplies the weight in before the division."""

import torch

CALLS = 0


def fast_norm(x, weight):
    global CALLS
    CALLS += 1
    scale = x.square().mean(-1, keepdim=True).add(1e-6).sqrt()
    return x * weight / scale
''',
    MICROTEST: '''\
"""fast_norm against the maths."""

import torch
from fidelity.tensors import Case, assert_patch

from stack import fast_norm as patch

TOLERANCE = 1e-5
WIDTHS = (8, 64, 512)


def truth(x, weight):
    return x * (x.square().mean(-1, keepdim=True) + 1e-6).rsqrt() * weight


def inputs():
    generator = torch.Generator().manual_seed(0)
    return [
        Case(
            str(width),
            {
                "x": torch.randn(16, width, generator=generator),
                "weight": torch.rand(width, generator=generator),
            },
        )
        for width in WIDTHS
    ]


def test_fast_norm_is_the_norm():
    assert_patch(
        patch.fast_norm,
        truth,
        truth,
        inputs(),
        name="fast_norm",
        dtype=torch.float32,
        row_inputs=("x",),
        special=("x",),
        calls=lambda: patch.CALLS,
    )


def test_its_error_is_small():
    for case in inputs():
        error = (patch.fast_norm(**case.arguments) - truth(**case.arguments)).abs().max()
        assert error < TOLERANCE
''',
}


LIGHT = {
    KERNEL: "def fast_norm(x, weight):\n    return x * weight\n",
    MICROTEST: """\
from stack import fast_norm as patch


def test_fast_norm_is_the_norm():
    assert patch.fast_norm(2.0, 3.0) == 6.0


def test_its_error_is_small():
    assert abs(patch.fast_norm(0.1, 3.0) - 0.3) < 1e-9
""",
}
"""The same repository without torch."""


def git(root: Path, *arguments: str) -> str:
    """Run git with an author, apart from the user's own configuration."""
    command = [
        "git",
        *("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"),
        *arguments,
    ]
    return subprocess.run(command, cwd=root, check=True, capture_output=True, text=True).stdout


def write(root: Path, path: str, text: str) -> None:
    """Write a file, with its folder."""
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text, encoding="utf-8")


def edit(root: Path, path: str, old: str, new: str) -> None:
    """Replace a text that is there."""
    text = (root / path).read_text(encoding="utf-8")
    assert old in text
    write(root, path, text.replace(old, new))


def commit(root: Path, words: str = "a change") -> None:
    """Commit everything."""
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "-m", words)


def fork(root: Path, files: Mapping[str, str] = MappingProxyType(FILES)) -> Path:
    """Make the repository: `main` is the base, and the branch `change` is checked out."""
    root.mkdir()
    git(root, "init", "--quiet", "--initial-branch=main")
    for path, text in files.items():
        write(root, path, text)
    commit(root, "a stack")
    git(root, "checkout", "--quiet", "-b", "change")
    return root
