"""The same token ids through two deployments: an independent implementation, and a damaged one."""

import json
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import Request, urlopen

import pytest
from product import BIN, ROOT, clean_environ, finished
from proxies import UpstreamServer

from fidelity.deployment.command import free_port
from fidelity.words import Ladder, Outcome, RunVerdict

pytestmark = pytest.mark.acceptance

TEXTS = "golden/texts_are_scored_as_by_the_golden"
CHECKPOINT = ROOT / "engine" / "checkpoints" / "nano"
READY_S = 120


@contextmanager
def transformers_server(folder):
    """`transformers` in a process whose path does not contain the checkout; short contexts."""
    port = free_port()
    script = Path(__file__).with_name("transformers_golden.py")
    command = [sys.executable, "-P", str(script), str(CHECKPOINT), str(port), "600"]
    with (folder / "golden.log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=clean_environ(), stdout=log, stderr=subprocess.STDOUT
        )
    try:
        wait_until_ready(f"http://127.0.0.1:{port}/health", process)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)


def wait_until_ready(url, process):
    deadline = time.monotonic() + READY_S
    while True:
        try:
            with urlopen(url, timeout=5):
                return
        except URLError:
            assert process.poll() is None, "the golden ended"
            assert time.monotonic() < deadline, "the golden was not ready"
            time.sleep(0.2)


def test_the_engine_agrees_with_transformers_in_float32(tmp_path):
    with transformers_server(tmp_path) as url:
        ran = finished(
            "golden",
            f"--golden={url}",
            "--dtype=float32",
            "-k=texts",
            folder=tmp_path / "run",
            name="golden: transformers",
        )
    assert ran.verdict.verdict is RunVerdict.FAITHFUL, ran.told()
    finding = ran.findings[TEXTS]
    assert finding.ladder in {Ladder.EXACT, Ladder.ROUNDING}
    assert ran.records[0].golden.version == "transformers"
    assert max(row["maximum"] for row in finding.profile["lengths"]) < 1e-3


def test_a_residue_of_the_length_is_found_and_named(tmp_path):
    """The prompts of 3 modulo 4 tokens are a quarter: pooled over all they are no majority."""
    ran = finished(
        "golden",
        "--golden=embedded",
        "--launch-arg=--fault=attention_mod4",
        "-k=texts",
        folder=tmp_path / "run",
        name="golden: attention_mod4",
    )
    assert ran.verdict.verdict is RunVerdict.UNFAITHFUL, ran.told()
    finding = ran.findings[TEXTS]
    assert finding.outcome is Outcome.FAIL
    assert finding.ladder is Ladder.STRUCTURAL
    assert "such texts have 3 mod 4 tokens" in finding.reason
    assert not ran.left_behind


def test_the_first_layer_and_token_are_named_from_dumps(tmp_path):
    """The fault loses the compressed entries: the first layer that has some is named."""
    ids = [0, 3, *(50 + 7 * i % 1_100 for i in range(257))]  # 259 tokens: 3 modulo 4
    folders = {"measured": tmp_path / "measured", "golden": tmp_path / "golden"}
    for name, faults in (("measured", ["--fault=attention_mod4"]), ("golden", [])):
        with UpstreamServer(f"--dump-activations={folders[name]}", *faults) as server:
            body = json.dumps({"model": "nano", "prompt": ids, "max_tokens": 1}).encode()
            request = Request(
                f"{server.base_url}/completions", body, {"content-type": "application/json"}
            )
            with urlopen(request, timeout=120):
                pass
    words = [str(BIN / "fidelity"), "golden-dumps", *map(str, folders.values())]
    parting = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert parting.returncode == 1, parting.stdout + parting.stderr
    first, _, rest = parting.stdout.partition(".attn_out, token ")
    assert first.startswith("the dumps part at L"), parting.stdout
    assert int(rest.split()[0]) < 128, "the first entry closes within the first window"
    assert "of 259 tokens differ there" in rest
    agreeing = subprocess.run(
        [*words[:-1], words[-2]], capture_output=True, timeout=120, check=False
    )
    assert agreeing.returncode == 0
