"""Triton's interpreter must be chosen before triton is imported, so it gets its own process."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="no triton here")
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
