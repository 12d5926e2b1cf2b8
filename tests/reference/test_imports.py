"""The reference imports torch and the standard library, and nothing else."""

import ast
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "reference"
ALLOWED = sys.stdlib_module_names | {"torch", "reference"}


def imported(source: str) -> set[str]:
    """Top-level names of every import, wherever it stands."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add("a relative import" if node.level else str(node.module))
        elif isinstance(node, ast.Name) and node.id == "__import__":
            names.add("__import__")
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.py")), ids=lambda path: path.stem)
def test_a_file_imports_torch_and_the_standard_library_only(path) -> None:
    names = imported(path.read_text(encoding="utf-8"))
    assert names <= ALLOWED
    assert "importlib" not in names


@pytest.mark.parametrize(
    "source",
    ["import numpy", "from kernels.ops import x", "def f():\n    import triton", "from . import a"],
)
def test_another_import_would_be_seen(source) -> None:
    assert not imported(source) <= ALLOWED


def test_files_are_short() -> None:
    for path in FOLDER.rglob("*.py"):
        assert len(path.read_text(encoding="utf-8").splitlines()) <= 250, path.name
