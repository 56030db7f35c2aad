"""The wheel serves every Python and every torch, and a machine without a compiler can install it too."""

import hashlib
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
from base64 import urlsafe_b64encode
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


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """Two installed packages: one with code of its own, one that is built here."""
    folder = tmp_path / "site-packages"
    for name, files in (("some_thing", {"some_thing.py": "one = 1\n", "data.txt": "two\n"}), ("weft", {})):
        install(folder, name, files)
    return folder


def install(folder: Path, name: str, files: dict[str, str]) -> None:
    """Lay files down as an installer does, with the list of their hashes."""
    told = f"{name}-1.0.dist-info"
    files = {**files, f"{told}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"}
    (folder / told).mkdir(parents=True, exist_ok=True)
    rows = [f"{told}/RECORD,,"]
    for path, text in files.items():
        (folder / path).write_text(text)
        hashed = urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
        rows.append(f"{path},sha256={hashed},{len(text)}")
    (folder / told / "RECORD").write_text("\n".join(rows) + "\n")


def lock(site: Path, *words: str) -> tuple[int, str]:
    """Run the tool as `make` does, and return how it ended and what it said."""
    command = [
        sys.executable,
        "-I",
        str(ROOT / "docs" / "lock.py"),
        str(site),
        str(site.parent / "lock"),
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr + done.stdout


def test_a_lock_holds_an_environment_to_its_bytes(site: Path) -> None:
    code, told = lock(site)
    assert (code, "no such file; make one with --write" in told) == (2, True)
    assert lock(site, "--write")[0] == 0
    assert (site.parent / "lock").read_text().startswith("some-thing==1.0 --record=sha256:")
    assert len((site.parent / "lock").read_text().splitlines()) == 1, "weft is built here"
    assert lock(site)[0] == 0
    (site / "some_thing.py").write_text("one = 2\n")
    assert lock(site) == (1, "some-thing: some_thing.py: changed\n1 differences\n")
    assert lock(site, "--write")[0] == 1, "what is damaged is not locked"
    (site / "some_thing.py").unlink()
    assert "some-thing: some_thing.py: missing" in lock(site)[1]


def test_a_lock_names_another_build_what_came_and_what_belongs_to_nobody(site: Path) -> None:
    assert lock(site, "--write")[0] == 0
    install(site, "some_thing", {"some_thing.py": "one = 3\n", "data.txt": "two\n"})
    assert "some-thing: another build of the same version" in lock(site)[1]
    install(site, "other", {"other.py": ""})
    assert "other: is not in the lock; other==1.0 is installed" in lock(site)[1]
    (site / "planted.pth").write_text("import os\n")
    code, told = lock(site)
    assert (code, "planted.pth: belongs to no package" in told) == (1, True)
    for path in site.glob("some_thing*"):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert "some-thing: is not installed; the lock has some-thing==1.0" in lock(site)[1]
