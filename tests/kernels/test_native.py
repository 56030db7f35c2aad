"""Finding, loading and doing without the native core."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from kernel_checks import needs_core
from torch._subclasses.fake_tensor import FakeTensorMode

from weft import kernels
from weft.errors import WeftError, WeftWarning
from weft.kernels import native

RUN = "import torch, weft.kernels as k; print(k.gather(torch.arange(3.0), torch.tensor([2])).item());"
SAY = "from weft.kernels import native; print(native.available(), native.describe())"


def _python(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", **environment},
    )


def test_the_core_is_switched_off_by_the_environment_without_a_warning() -> None:
    done = _python(RUN + SAY, WEFT_NATIVE="0")
    assert done.stdout.split("\n")[:2] == ["2.0", "False not used: switched off by WEFT_NATIVE=0"]
    assert "WeftWarning" not in done.stderr


def test_a_missing_core_is_told_once_and_everything_runs() -> None:
    hide = "from weft.kernels import native; native.find = lambda: None;"
    done = _python(hide + RUN + RUN + SAY)
    assert done.stdout.startswith("2.0\n2.0\nFalse not used: libweftcore.so is not installed")
    assert done.stderr.count("WeftWarning") == 1


def test_a_file_that_is_no_library_is_not_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / native.FILE_NAME
    broken.write_bytes(b"not a library")
    monkeypatch.setattr(native, "find", lambda: broken)
    monkeypatch.setattr(native, "_core", native._Core())
    with pytest.warns(WeftWarning, match="reference kernels"):
        assert native.library() is None


@needs_core
def test_cpu_tensors_are_served_whatever_the_default_device() -> None:
    src, dst, clock = torch.tensor([2, 0, 1, 2]), torch.tensor([0, 0, 1, 3]), torch.tensor([1, 2, 3])
    x, score = torch.rand(4, 2, 3), torch.rand(4, 2)

    def run() -> list[torch.Tensor]:
        indptr, indices, edge_ids = kernels.build_csr(src, dst, 4)
        held = kernels.transpose_csr(indptr, indices, 4)
        leaf = x.clone().requires_grad_()
        summed = kernels.spmm(indptr, indices, leaf, transposed=held)
        attended = kernels.attention(indptr, indices, score, score, leaf, dropout=0.5, clock=clock)
        dropped = kernels.dropout(leaf, src, 0.5, clock=clock)
        largest = kernels.spmm(indptr, indices, leaf, reduce="max")
        total = sum(made.square().sum() for made in (summed, attended, dropped, largest))
        made = [indptr, indices, edge_ids, *held, *kernels.relabel(src), kernels.gather(x, src)]
        return [*made, kernels.sddmm(indptr, indices, leaf, leaf), *torch.autograd.grad(total, leaf)]

    expected = run()
    with torch.device("meta"):
        found = run()
    assert all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))


@pytest.mark.skipif(not native.available(), reason="needs the native core")
def test_a_core_of_another_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "ABI_VERSION", -1)
    with pytest.raises(WeftError, match="expected -1; reinstall weft"):
        native.load(native.find())


@pytest.mark.skipif(not native.available(), reason="needs the native core")
def test_a_core_whose_structures_are_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    (name,) = native.SIZES
    monkeypatch.setitem(native.SIZES, name, native.SIZES[name] + 8)
    with pytest.raises(WeftError, match="weft_attention_call_bytes is"):
        native.load(native.find())


@pytest.mark.skipif(not native.available(), reason="needs the native core")
def test_describe_names_the_file_and_the_instruction_set() -> None:
    assert native.FILE_NAME in native.describe()
    assert any(name in native.describe() for name in ("portable", "AVX2", "AVX-512"))


def test_disabled_is_undone_after_an_error() -> None:
    before = native.available()
    with native.disabled():
        assert not native.available()
        assert "disabled" in native.describe()
    with pytest.raises(ZeroDivisionError), native.disabled():
        raise ZeroDivisionError
    assert native.available() == before


def test_a_status_of_the_core_becomes_an_error_with_a_reason() -> None:
    native.check(0, "spmm")
    with pytest.raises(MemoryError, match="spmm: out of memory"):
        native.check(3, "spmm")
    with pytest.raises(WeftError, match="spmm: the native core returned 77"):
        native.check(77, "spmm")


def test_integer_values_run_on_the_reference() -> None:
    indptr, indices = torch.tensor([0, 2]), torch.tensor([0, 1])
    assert kernels.spmm(indptr, indices, torch.tensor([[2], [5]])).tolist() == [[7]]


@pytest.mark.parametrize("start", [0, 3])
def test_a_tensor_without_values_has_no_address(start: int) -> None:
    x = FakeTensorMode().from_tensor(torch.ones(8, 2))[start:]
    with pytest.raises(WeftError, match=r"a tensor of shape \[\d, 2\] has no values"):
        native.pointer(x)
    with pytest.raises(WeftError, match="has no values"):
        native.address(torch.empty(3, device="meta"))


def test_a_tensor_of_a_type_of_its_own_and_an_empty_one_have_an_address() -> None:
    class Named(torch.Tensor):
        """Values with a name."""

    x = torch.ones(4)
    assert native.address(x.as_subclass(Named)) == native.pointer(x) == x.data_ptr()
    assert native.address(torch.empty(0)) == 0
    assert native.pointer(torch.empty(0))
