"""Memory of the host that a GPU reads by itself."""

import os
from types import SimpleNamespace

import pytest
import torch

from weft.stores.link import reachable

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        os.environ.get("WEFT_TEST_DEVICE") != "cuda", reason="needs a GPU; run by `make test-gpu`"
    ),
]


def test_a_matrix_is_pinned_where_it_lies() -> None:
    x = torch.rand(1000, 7)
    found = reachable(x)
    assert found.data_ptr() == x.data_ptr()
    assert found.is_pinned()


def test_what_cannot_be_pinned_where_it_lies_is_copied_and_no_later_launch_is_blamed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    refusing = SimpleNamespace(cudaHostRegister=lambda *given: runtime.cudaHostRegister(0, 0, 0))
    monkeypatch.setattr(torch.cuda, "cudart", lambda: refusing)
    x = torch.rand(1000, 7)
    found = reachable(x)
    assert found.is_pinned()
    assert torch.equal(found, x)
    assert float(torch.full((), 3.0, device="cuda")) == 3.0
