"""Kernels under arguments that do not fit: tensors or an error, no byte outside of what they were given."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import kernel_fuzz
import pytest
from kernel_checks import needs_core

from weft import kernels

ROOT = Path(__file__).parents[2]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=undefined", "-fopenmp"]
# Bits of signed numbers are moved to the exponent of a float: every compiler of the core defines that.
SANITIZED += ["-fno-sanitize=shift-base"]
SLOW_TO_COMPILE = {"program"}  # minutes, and more than a GiB, where it is optimised under sanitizers
OPTIONS = ["-std=c++17", "-O1", "-g1", "-fPIC", "-ffp-contract=off", "-fno-math-errno", "-fno-trapping-math"]


@needs_core
def test_arguments_that_do_not_fit_give_an_error_or_a_value() -> None:
    outcomes = kernel_fuzz.run(600)
    assert outcomes.total() == 600
    for name in kernel_fuzz.CALLS:
        assert outcomes[f"{name} done"] > 10, "most calls are right"
    assert sum(times for outcome, times in outcomes.items() if outcome.endswith("refused")) > 60


@needs_core
def test_the_fuzzer_sees_what_a_kernel_does_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(*_: object) -> None:
        raise SystemError("an error that no kernel gives")

    monkeypatch.setattr(kernels, "gather", crash)
    with pytest.raises(SystemError):
        kernel_fuzz.run(200)


def sanitizers(compiler: str) -> list[str]:
    """Return the libraries that a process must load first, or skip where the compiler has none."""
    found = [
        subprocess.run([compiler, f"-print-file-name={name}"], capture_output=True, text=True).stdout.strip()
        for name in ("libasan.so", "libubsan.so")
    ]
    if not all(os.path.isabs(path) for path in found):
        pytest.skip(f"{compiler} has no sanitizers")
    return found


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_no_kernel_leaves_its_memory_under_sanitizers(tmp_path: Path) -> None:
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("needs g++")
    libraries = sanitizers(compiler)
    for source in sorted((ROOT / "csrc").glob("*.cpp")):
        options = [*OPTIONS, *SANITIZED, *(["-O0"] if source.stem in SLOW_TO_COMPILE else [])]
        built = [compiler, *options, "-c", str(source), "-o", str(tmp_path / f"{source.stem}.o")]
        subprocess.run(built, check=True, stderr=subprocess.DEVNULL, timeout=1200)
    core = tmp_path / "libweftcore.so"
    objects = map(str, sorted(tmp_path.glob("*.o")))
    subprocess.run([compiler, "-shared", *SANITIZED, *objects, "-o", str(core)], check=True, timeout=600)
    done = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "support" / "kernel_fuzz.py"), "20000", str(core)],
        env={
            **os.environ,
            "LD_PRELOAD": ":".join(libraries),
            "ASAN_OPTIONS": "detect_leaks=0,allocator_may_return_null=1",
            "UBSAN_OPTIONS": "print_stacktrace=1",
        },
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode == 0, done.stderr[-8000:]
    assert "runtime error" not in done.stderr
