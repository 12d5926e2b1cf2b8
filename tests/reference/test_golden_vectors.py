"""The committed vectors are what the command writes."""

import json
import subprocess
import sys
from pathlib import Path

from reference.encoding_constants import read_constants
from reference.golden_vectors import vectors, written

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "suites" / "data" / "encoding_deepseek_v4_nano.json"


def command(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "reference.golden_vectors", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_committed_vectors_are_the_commands_output(tmp_path) -> None:
    done = command("--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / COMMITTED.name).read_bytes() == COMMITTED.read_bytes()


def test_a_checkpoint_of_the_family_gets_its_own(tmp_path) -> None:
    raw = json.loads((ROOT / "engine/checkpoints/nano/encoding.json").read_text(encoding="utf-8"))
    raw["efforts"] = {"max": "Think hard. "}
    (tmp_path / "encoding.json").write_text(json.dumps(raw))
    arguments = ("--encoding", str(tmp_path / "encoding.json"), "--name", "mine")
    done = command(*arguments, "--out", str(tmp_path), "--default-thinking")
    assert done.returncode == 0, done.stderr
    content = json.loads((tmp_path / "encoding_mine.json").read_text(encoding="utf-8"))
    by_name = {vector["name"]: vector for vector in content["vectors"]}
    assert "Think hard. " in by_name["effort max"]["text"]
    assert by_name["as the server does by itself"]["text"].endswith("<think>")
    assert "effort low" not in by_name


def test_a_missing_file_is_refused_in_words(tmp_path) -> None:
    done = command("--encoding", str(tmp_path / "none.json"), "--out", str(tmp_path))
    assert done.returncode == 2
    assert "none.json cannot be used" in done.stderr


def test_every_vector_has_a_name_of_its_own_and_one_line() -> None:
    content = vectors(read_constants(ROOT / "engine/checkpoints/nano/encoding.json"), "nano")
    names = [(vector["topic"], vector["name"]) for vector in content["vectors"]]
    assert len(set(names)) == len(names) >= 30
    assert len(written(content).splitlines()) == len(names) + 2
    assert sum("thinking" not in vector for vector in content["vectors"]) == 1
