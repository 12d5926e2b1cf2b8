"""What ends the life of a verdict: code that ran or judged, contents that were read, compilers."""

import hashlib
import importlib.metadata
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from pathlib import Path

import torch

from fidelity.config.config_file import FILE_NAME, read_config
from fidelity.microtests.import_closure import import_closure

ROOT = Path(__file__).resolve().parents[2]
BINDING = ("kernels/__init__.py", "kernels/ops.py", "kernels/patch.py", "kernels/table.py")
"""How every patch is bound: part of the code of each, and no way from one kernel to all others."""
_DECIDES_NOTHING = (
    *("fidelity/config/", "fidelity/records.py"),
    *("fidelity/deployment/", "fidelity/endpoint/", "fidelity/dialects/"),
)
_PACKAGES = ("engine", "fidelity", "kernels", "reference", "suites")
_WHOLE_BYTES = 256 << 20
_SAMPLE_BYTES, _SAMPLES = 64 << 10, 256


@cache
def code_of(name: str) -> tuple[Path, ...]:
    """Return the files that a patch executes under kernels/, and those that examine and judge it.

    Its own are the `files` of its entry in fidelity.toml; from these and from its microtest what
    they import. A patch without a kernel of its own sets the baseline's operations.
    """
    patch = read_config(ROOT / FILE_NAME).patches[name]
    own = [ROOT / file for file in patch.files]
    begin = [*own, ROOT / patch.microtest, Path(__file__).with_name("conftest.py")]
    if all(file in BINDING or not file.startswith("kernels/") for file in patch.files):
        begin += sorted((ROOT / "kernels" / "baseline").glob("*.py"))
    stop = (*BINDING, *_DECIDES_NOTHING)
    found = import_closure(begin, ROOT, packages=_PACKAGES, stop=stop)
    return tuple(sorted({*found, *(ROOT / file for file in BINDING)}))


@lru_cache(maxsize=8)
def contents_of(*folders: Path) -> str:
    """sha256 over the files of these folders; of a file above 256 MiB its size and samples.

    A checkpoint that is trained anew differs in every sample.
    """
    digest = hashlib.sha256()
    for folder in folders:
        for path in _read_files(folder):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            _feed(digest.update, path)
    return digest.hexdigest()


def device_words(label: str, device: torch.device) -> str:
    """Return a device's label with the version of the compiler of its kernels."""
    if device.type != "cuda":
        return label
    return f"{label}, triton {importlib.metadata.version('triton')}"


def _read_files(folder: Path) -> Iterable[Path]:
    """Yield what a verdict may rest on: weights, settings, tokens; no card, and no figures."""
    names = {"config.json", "tokenizer.json", "encoding.json", "model.safetensors.index.json"}
    found = folder.iterdir() if folder.is_dir() else ()
    return sorted(path for path in found if path.name in names or path.suffix == ".safetensors")


def _feed(update: Callable[[bytes], object], path: Path) -> None:
    size = path.stat().st_size
    with path.open("rb") as file:
        if size <= _WHOLE_BYTES:
            while block := file.read(1 << 20):
                update(block)
            return
        for number in range(_SAMPLES):
            file.seek((size - _SAMPLE_BYTES) * number // (_SAMPLES - 1))
            update(file.read(_SAMPLE_BYTES))
