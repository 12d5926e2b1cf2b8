"""Compiles the C sources beside this file once per user, machine and compiler, and loads them."""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from pathlib import Path

SOURCES = Path(__file__).parent
COMPILERS = ("cc", "gcc", "clang")
COMPILE_TIMEOUT_S = 300
WAY_ON = "install a C compiler (gcc or clang), or choose the slower ops with --kernels torch"


class NativeUnavailable(RuntimeError):
    """The native ops cannot be built or loaded on this machine."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"native kernels are not available: {reason}; {WAY_ON}")


def flags() -> tuple[str, ...]:
    """Compiler flags: this machine's vectors, fused multiply-add, no loosened arithmetic."""
    tune = "-mcpu=native" if platform.machine() in ("aarch64", "arm64") else "-march=native"
    return (
        "-O3",
        tune,
        "-std=gnu11",
        "-ffp-contract=fast",
        "-fvisibility=hidden",
        "-fPIC",
        "-shared",
    )


def load_library(cache: Path | None = None) -> ctypes.CDLL:
    """The library, compiled first if this user has not done so for these sources yet.

    Args:
        cache: folder for compiled libraries; default: a private folder of this user.


    Raises:
        NativeUnavailable: no compiler, or it failed; says how to go on.
    """
    compiler = next((path for name in COMPILERS if (path := shutil.which(name))), None)
    if compiler is None:
        raise NativeUnavailable(f"none of {', '.join(COMPILERS)} is on the PATH")
    folder = cache if cache is not None else _private_folder()
    library = folder / f"kernels-{_fingerprint(compiler)}.so"
    if not library.exists():
        _compile(compiler, library)
    try:
        return ctypes.CDLL(str(library))
    except OSError as error:
        raise NativeUnavailable(f"{library} does not load ({error}); delete it") from error


def _private_folder() -> Path:
    """A folder that only this user can write: code is loaded from it."""
    temporary = Path(tempfile.gettempdir()) / f"fidelity-kernels-{os.getuid()}"
    for folder in (Path.home() / ".cache" / "fidelity-kernels", temporary):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            state = folder.lstat()
            if (
                state.st_uid == os.getuid()
                and not state.st_mode & 0o022
                and not folder.is_symlink()
            ):
                return folder
        except OSError:
            continue
    raise NativeUnavailable(f"{temporary} is not a folder that only this user can write")


def _fingerprint(compiler: str) -> str:
    digest = hashlib.sha256(" ".join(flags()).encode())
    for source in sorted([*SOURCES.glob("*.c"), *SOURCES.glob("*.h")]):
        digest.update(source.name.encode() + source.read_bytes())
    digest.update(_run([compiler, "--version"]).encode())
    digest.update(_cpu().encode())
    return digest.hexdigest()[:20]


def _cpu() -> str:
    """What -march=native depends on."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    wanted = ("model name", "flags", "Features", "CPU part")
    first = {
        line.split(":")[0].strip(): line for line in reversed(lines) if line.startswith(wanted)
    }
    return platform.machine() + "".join(first[key] for key in sorted(first))


def _compile(compiler: str, library: Path) -> None:
    """Compile beside the target and rename: processes that start at once do not meet."""
    sources = [str(path) for path in sorted(SOURCES.glob("*.c"))]
    handle, partial = tempfile.mkstemp(dir=library.parent, suffix=".partial")
    os.close(handle)
    try:
        _run([compiler, *flags(), "-o", partial, *sources, "-lm"])
        Path(partial).replace(library)
    finally:
        Path(partial).unlink(missing_ok=True)


def _run(command: list[str]) -> str:
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=COMPILE_TIMEOUT_S,
            check=False,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NativeUnavailable(f"{command[0]} did not run ({error})") from error
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["no message"])[0][:300]
        raise NativeUnavailable(f"{command[0]} failed with exit code {done.returncode}: {said}")
    return done.stdout
