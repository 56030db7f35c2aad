"""The wheel serves every Python and every torch, and a machine without a compiler can install it too."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCES = ["pyproject.toml", "README.md", "LICENSE", "CMakeLists.txt", "csrc", "src"]


def build_wheel(folder: Path, **environment: str) -> Path:
    """Build the wheel from a copy of the sources, so that the checkout's own build is left alone."""
    tree = folder / "tree"
    tree.mkdir()
    for name in SOURCES:
        source = ROOT / name
        copy = shutil.copytree if source.is_dir() else shutil.copy
        copy(source, tree / name)
    # Whether it builds and loads is asked here, not how fast it is.
    environment = {"SKBUILD_CMAKE_DEFINE": "WEFT_OPTIMISATION=-O0", **environment}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder), str(tree)]
    subprocess.run(command, check=True, env={**os.environ, **environment}, timeout=280)
    (wheel,) = folder.glob("weft-*.whl")
    return wheel


def clean_python(folder: Path, wheel: Path) -> Path:
    """Return the interpreter of a new environment that holds the wheel and borrows torch and numpy."""
    venv.create(folder, with_pip=False, symlinks=True)
    site = Path(sysconfig.get_path("purelib", vars={"base": str(folder)}))
    zipfile.ZipFile(wheel).extractall(site)
    # The borrowed folder comes after the environment's own; its .pth files (an editable weft) are not read.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "python"


def run(python: Path, code: str) -> subprocess.CompletedProcess[str]:
    """Run a few lines in an environment of their own, away from the checkout."""
    return subprocess.run(
        [str(python), "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        cwd=python.parents[1],
    )


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("c++") is None, reason="no C++ compiler on this machine")
def test_wheel_has_no_python_or_torch_version_and_imports_in_a_clean_environment(tmp_path: Path) -> None:
    wheel = build_wheel(tmp_path)
    assert "-py3-none-" in wheel.name
    assert not wheel.name.endswith("-any.whl")
    python = clean_python(tmp_path / "clean", wheel)
    code = "import weft, weft.kernels.native as n; print(weft.__file__); print(n.available(), n.describe())"
    where, native = run(python, code).stdout.strip().splitlines()
    assert str(tmp_path) in where
    assert native.startswith("True")


ONCE = """
import torch, weft
from weft import kernels
indptr, indices = torch.tensor([0, 2, 2]), torch.tensor([0, 1])
for _ in range(3):
    print(kernels.spmm(indptr, indices, torch.ones(2, 4)).tolist())
"""


def test_without_a_compiler_it_installs_and_says_once_that_the_reference_runs(tmp_path: Path) -> None:
    wheel = build_wheel(
        tmp_path, CXX=str(tmp_path / "no-such-compiler"), CC=str(tmp_path / "no-such-compiler")
    )
    assert not any(name.endswith(".so") for name in zipfile.ZipFile(wheel).namelist())
    result = run(clean_python(tmp_path / "clean", wheel), ONCE)
    assert result.stdout.splitlines() == ["[[2.0, 2.0, 2.0, 2.0], [0.0, 0.0, 0.0, 0.0]]"] * 3
    assert result.stderr.count("WeftWarning") == 1


def test_the_list_of_components_names_every_dependency_and_its_licence(tmp_path: Path) -> None:
    written = tmp_path / "sbom.json"
    subprocess.run([sys.executable, ROOT / "docs" / "sbom.py", written], check=True, timeout=60)
    told = json.loads(written.read_text())
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    listed = {each["bom-ref"]: each for each in told["components"]}
    names = {each["name"] for each in listed.values()}
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert {re.split("[<>=!~ ;]", line)[0] for line in asked} <= names
    needs = {each["ref"]: each["dependsOn"] for each in told["dependencies"]}
    assert needs.keys() == {*listed, told["metadata"]["component"]["bom-ref"]}
    assert {one for each in needs.values() for one in each} == set(listed), "all that they need is listed"
    assert {"sympy", "mpmath"} <= names, "torch's own, and theirs"
    assert not names & {"duckdb", "pyspark", "pytest"}, "no extras"
    licences = {each["licenses"][0]["license"]["name"] for each in listed.values()}
    assert "not stated" not in licences
    assert "Apache-2.0" in licences
