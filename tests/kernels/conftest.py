"""Every test that asks for `form` runs on the reference and on each instruction set that the machine has.

With WEFT_TEST_DEVICE=cuda (`make test-gpu`) tensors are made on the GPU, and operators run on Triton.
"""

from collections.abc import Generator, Iterator

import pytest
import torch
from kernel_checks import DEVICE

from weft.kernels import native

LEVELS = {"portable": 0, "AVX2": 1, "AVX-512": 2}


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Have the test modules of this folder make their constants on the device."""
    if DEVICE == "cpu":
        return (yield)
    with torch.device(DEVICE):
        return (yield)


@pytest.fixture(autouse=True)
def tensors_on_the_device() -> Iterator[None]:
    """Have a test of this folder make its tensors on the device, and leave no trace of that to others."""
    if DEVICE == "cpu":
        yield
        return
    with torch.device(DEVICE):
        yield


@pytest.fixture(params=["reference", *LEVELS] if DEVICE == "cpu" else [DEVICE])
def form(request: pytest.FixtureRequest) -> Iterator[str]:
    """Switch the operators to one of their forms."""
    if request.param == DEVICE:
        yield request.param
        return
    if request.param == "reference":
        with native.disabled():
            yield request.param
        return
    core = native.library()
    if core is None:
        pytest.skip(f"the native core is {native.describe()}")
    if LEVELS[request.param] > core.weft_detected_level():
        pytest.skip(f"this processor has no {request.param}")
    core.weft_set_level(LEVELS[request.param])
    yield request.param
    core.weft_set_level(core.weft_detected_level())


@pytest.fixture
def small_hubs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have Triton's kernels cut rows at 8 edges."""
    from weft.kernels.triton import plan

    monkeypatch.setattr(plan, "SEGMENT", 8)
