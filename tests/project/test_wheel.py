"""The wheel brings the endpoint harness and nothing that collides with a user's environment."""

import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("fidelity", "suites", "reports", "pyproject.toml", "README.md", "LICENSE")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Path of a wheel built from a copy of the sources, without the network."""
    source = tmp_path_factory.mktemp("source")
    for name in SOURCES:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, source / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, source / name)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--no-deps", "--no-build-isolation"]
    subprocess.run([*command, "-q", "-w", str(out), str(source)], check=True, timeout=120)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel, tmp_path_factory):
    """Folder with the wheel's content beside a foreign distribution that is called `kernels`."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    (site / "kernels").mkdir()
    (site / "kernels" / "__init__.py").write_text("WHOSE = 'foreign'\n")
    info = site / "kernels-0.12.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: kernels\nVersion: 0.12.0\n")
    return site


def run(installed, *arguments, cwd):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("FIDELITY", "PYTEST"))}
    environment |= {"PYTHONPATH": str(installed), "NO_COLOR": "1"}
    return subprocess.run(
        [sys.executable, "-P", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_the_wheel_installs_three_top_level_names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    tops = {name.split("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {"fidelity", "suites", "reports"}
    assert not [name for name in names if name.startswith("suites/patches")]
    assert "suites/test_needle_sweep.py" in names
    assert [name for name in names if name.endswith(".j2")]
    packages = {str(path.relative_to(ROOT)) for path in (ROOT / "fidelity").rglob("*.py")}
    assert packages <= set(names)  # a checkout on the path would hide one that is left out


def test_the_core_installs_without_torch(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    core = [line for line in metadata.get_all("Requires-Dist") if "extra ==" not in line]
    assert core
    assert not [line for line in core if line.startswith(("torch", "triton", "transformers"))]


def test_a_foreign_package_called_kernels_stays_importable_beside_the_harness(installed, tmp_path):
    code = "import fidelity.plugin, kernels, suites; print(kernels.WHOSE, suites.__file__)"
    done = run(installed, "-c", code, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(f"foreign {installed}")


def test_the_command_runs_the_installed_suites_from_an_empty_folder(installed, tmp_path):
    arguments = ["-m", "fidelity.cli", "run", "--base-url", "http://127.0.0.1:9/v1", "--model", "x"]
    done = run(installed, *arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    assert "error" in done.stdout
    assert (tmp_path / "runs" / "latest" / "report.html").is_file()


def test_microtests_without_a_checkout_are_refused_in_one_sentence(installed, tmp_path):
    done = run(installed, "-m", "fidelity.cli", "micro", cwd=tmp_path)
    assert done.returncode == 2, done.stdout
    assert "microtests need a checkout of the project" in done.stderr
    assert not (tmp_path / "runs").exists()
