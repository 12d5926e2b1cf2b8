"""Triton's interpreter must be chosen before triton is imported, so it gets its own process."""

import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def why_not() -> str:
    """Why nothing can be interpreted here, or nothing."""
    try:
        version = metadata.version("triton")
    except metadata.PackageNotFoundError:
        return "no triton here"
    # `range` over a number that the kernel was given: `int` of an array of one element, which
    # numpy 1.25 warned of and 2.4 refuses. Compiled kernels are as good under 3.4 as later.
    loops = tuple(map(int, version.split(".")[:2])) >= (3, 7)
    return "" if loops else f"the interpreter of triton {version} cannot loop; that of 3.7 can"


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_the_kernels_agree_with_their_arithmetic_when_interpreted():
    command = [sys.executable, "-m", "pytest", "tests/kernels/interpreted", "-q", "--no-header"]
    done = subprocess.run(
        [*command, "-p", "no:cacheprovider", "-W", "ignore::RuntimeWarning"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) >= 10
