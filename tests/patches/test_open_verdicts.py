"""What pytest calls green is none where the verdict on a patch is open."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fidelity.gate.microtest_run import COMMAND, Runner
from fidelity.words import Outcome

ROOT = Path(__file__).parents[2]
THINKING = "suites/patches/test_default_thinking.py"


def asked(tmp_path, *arguments):
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    done = subprocess.run(
        [*command, f"--fidelity-run-dir={tmp_path / 'run'}"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if k != "PYTEST_ADDOPTS"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def test_a_whole_microtest_is_green(tmp_path):
    code, text = asked(tmp_path, THINKING)
    assert code == 0, text
    assert "exonerated  default_thinking" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--fidelity-patch=default_thinking=foo", THINKING], "takes no value, and foo was asked"),
        (["-k", "is_", THINKING], "were not selected: a part of them decides nothing"),
        (["--deselect", f"{THINKING}::NAMED", THINKING], "1 of"),
        ([f"{THINKING}::NAMED"], "single tests of its microtest were named"),
    ],
)
def test_an_open_verdict_ends_with_2_and_a_sentence(tmp_path, arguments, words):
    source = (ROOT / THINKING).read_text()
    name = source.partition("\ndef test_")[2].partition("(")[0]
    code, text = asked(tmp_path, *(a.replace("NAMED", f"test_{name}") for a in arguments))
    assert code == 2, text
    assert "fidelity: default_thinking is undecided: " in text.replace(
        "default_thinking=foo", "default_thinking"
    )
    assert words in text


def test_the_gate_does_not_take_an_open_verdict_for_a_pass(tmp_path):
    for arguments in (["--fidelity-patch=default_thinking=foo"], ["-k", "is_"]):
        runner = Runner(command=COMMAND, arguments=arguments, folder=tmp_path, timeout_s=300)
        result = runner.run(THINKING, ROOT, "default_thinking")
        assert result.outcome is Outcome.INCONCLUSIVE, result
        assert "is undecided" in result.reason
