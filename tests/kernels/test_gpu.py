"""Operators on a GPU: by Triton where it can, else by the reference, which says so once."""

import subprocess
import sys

import pytest
from triton_checks import HERE

from weft.errors import WeftWarning
from weft.kernels import gpu, native

pytestmark = pytest.mark.gpu

pytest.importorskip("triton", reason="Triton is not installed (pip install 'weft[gpu]')")


def test_without_triton_the_reference_runs_and_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu, "_triton", gpu._Triton())
    monkeypatch.setattr(gpu, "_obstacle", lambda: "this GPU is too old")
    run = gpu.form("spmm.spmm", lambda *given: "the reference's")
    with pytest.warns(WeftWarning, match="slower reference kernels on the GPU: this GPU is too old"):
        assert run(1, 2) == "the reference's"
    assert run(1, 2) == "the reference's"  # a second warning would be an error


@pytest.mark.skipif(HERE, reason="nothing of a device in it")
def test_importing_the_operators_imports_no_triton() -> None:
    code = "import sys, weft.kernels; sys.exit('triton' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_reference_can_be_asked_for() -> None:
    run = gpu.interpreted(lambda *given: "Triton's", lambda *given: "the reference's")
    assert run(1, 2) == "Triton's"
    with native.disabled():
        assert run(1, 2) == "the reference's"
    assert run(1, 2) == "Triton's"
