"""A user's own repository, and the gate run in it as its own process."""

import os
import subprocess
import sys

import pytest

from tests.fidelity.gate.ended import ROOT, Ended
from tests.fidelity.synthetic_fork import FILES, LIGHT, fork


@pytest.fixture
def repository(tmp_path):
    return fork(tmp_path / "fork")


@pytest.fixture
def light(tmp_path):
    """The same without torch, for what is not about figures: a second less for each process."""
    return fork(tmp_path / "fork", {**FILES, **LIGHT})


@pytest.fixture
def gate(tmp_path):
    repository = tmp_path / "fork"

    def run(*arguments, base="main", env=()):
        folder = tmp_path / "out"
        command = [sys.executable, "-m", "fidelity.cli", "gate", "--base", base]
        command += [f"--run-dir={folder}", *arguments]
        environ = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **dict(env)}
        made = subprocess.run(
            command,
            cwd=repository,
            env=environ,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        return Ended(made.returncode, made.stdout + made.stderr, folder)

    return run
