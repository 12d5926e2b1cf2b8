"""fidelity.toml describes every patch of the table, as the table has it."""

from pathlib import Path

from fidelity.config.config_file import read_config
from kernels import PATCHES

ROOT = Path(__file__).parents[2]


def test_every_patch_is_described_with_its_phase_files_and_microtest():
    described = read_config(ROOT / "fidelity.toml").patches
    assert {patch.name: patch.phase for patch in PATCHES} == {
        name: patch.phase for name, patch in described.items()
    }
    for patch in described.values():
        assert patch.can_toggle
        assert (ROOT / patch.microtest).is_file()
        assert all((ROOT / file).is_file() for file in patch.files)
        assert patch.active_when.patches == patch.name


def test_every_kernel_file_belongs_to_a_patch():
    described = read_config(ROOT / "fidelity.toml").patches
    files = {file for patch in described.values() for file in patch.files}
    names = {patch.name for patch in PATCHES}
    kernels = [p for p in (ROOT / "kernels").glob("**/*.py") if p.stem in names]
    assert {str(path.relative_to(ROOT)) for path in kernels} <= files
