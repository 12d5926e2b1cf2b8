"""The microtest of default_thinking sees the engine's own encoder: broken copies are convicted."""

import shutil

import pytest

from fidelity.errors import Violation
from fidelity.words import PatchVerdict
from suites.patches import deployed_encoder
from tests.patches.test_broken_twins import microtest

ROOT = deployed_encoder.ROOT
FAULTS = [
    ("no prompt opens reasoning", "encoding.py",
     "self.spec.think_start if opens_reasoning else self.spec.think_end", "self.spec.think_end"),
    ("reasoning of earlier turns stays", "encoding.py",
     'turn.pop("reasoning_content", None)', "pass"),
    ("nobody asks the patch", "chat.py",
     "engine.ops.default_thinking() or engine.config", "engine.config"),
    ("the patch overrules a request that says no", "chat.py", "if asked is not None:", "if asked:"),
]  # fmt: skip


@pytest.mark.parametrize(("fault", "file", "old", "new"), FAULTS, ids=[f[0] for f in FAULTS])
def test_a_broken_encoder_is_convicted(fault, file, old, new, tmp_path, monkeypatch, examine):
    skipped = shutil.ignore_patterns("__pycache__", "checkpoints", "nano")
    for part in ("engine", "kernels"):
        shutil.copytree(ROOT / part, tmp_path / part, ignore=skipped)
    path = tmp_path / "engine" / file
    source = path.read_text()
    assert old in source, f"{file} no longer holds {old!r}"
    path.write_text(source.replace(old, new))
    monkeypatch.setattr(deployed_encoder, "ROOT", tmp_path)
    examination = examine("default_thinking")
    with pytest.raises(Violation, match=r"^default_thinking: \d+ prompts of the engine"):
        microtest("default_thinking").test_the_deployed_encoder_writes_these_prompts(examination)
    assert examination.conclude().verdict is PatchVerdict.CONVICTED
