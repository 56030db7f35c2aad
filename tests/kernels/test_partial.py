"""Attention over parts of the edges: masses and their gradients, and that parts merge into the whole."""

from typing import Any

import pytest
import torch
from torch import Tensor

from weft.kernels import attention, attention_dot, attention_gatv2
from weft.kernels.partial import attention_part
from weft.kernels.reference_attention import ADDITIVE, DOT, GATV2

SRC, DST, HEADS, WIDTH = 6, 4, 2, 3
# Row 1 has no edge, row 3 has one.
ENDS = torch.tensor([[0, 1, 2, 5, 3, 3, 4, 1], [0, 0, 0, 0, 2, 2, 2, 3]])


def csr(chosen: Tensor) -> tuple[Tensor, Tensor]:
    """Return the edges that a mask keeps, by destination."""
    src, dst = ENDS[:, chosen]
    counts = torch.bincount(dst, minlength=DST)
    return torch.cat([counts.new_zeros(1), counts.cumsum(0)]), src.int()


def inputs(kind: int) -> dict[str, Any]:
    """Return what one kind of score takes, in float64, all of it with gradients."""
    draw = torch.Generator().manual_seed(kind)

    def made(*shape: int) -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=draw).requires_grad_()

    tail = (HEADS,) if kind == ADDITIVE else (HEADS, WIDTH)
    edge = (ENDS.shape[1], HEADS, WIDTH) if kind == GATV2 else (ENDS.shape[1], HEADS)
    return {
        "src": made(SRC, *tail),
        "dst": made(DST, *tail),
        "a": made(HEADS, WIDTH) if kind == GATV2 else None,
        "value": made(SRC, HEADS, WIDTH),
        "edge": made(*edge),
    }


def whole(kind: int, given: dict[str, Any], **drawing: Any) -> Tensor:
    """Return the attention over all edges."""
    at = csr(torch.ones(ENDS.shape[1]).bool())
    more: dict[str, Any] = {"edge": given["edge"], **drawing}
    if kind == GATV2:
        return attention_gatv2(*at, given["src"], given["dst"], given["a"], given["value"], 0.2, **more)
    called = attention if kind == ADDITIVE else attention_dot
    return called(*at, given["src"], given["dst"], given["value"], 0.2, **more)


@pytest.mark.parametrize("kind", [ADDITIVE, GATV2, DOT])
@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_parts_merge_into_the_whole_with_its_gradients(kind: int, dropout: float) -> None:
    given = inputs(kind)
    leaves = [tensor for tensor in given.values() if tensor is not None]
    drawing: dict[str, Any] = {"dropout": dropout, "clock": torch.tensor([1, 2, 3]), "layer": 4}
    reference = whole(kind, given, edge_ids=torch.arange(ENDS.shape[1]), **drawing)
    towards = torch.randn(reference.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(9))
    expected = torch.autograd.grad(reference, leaves, towards)

    parts = []
    for turn in range(3):
        chosen = torch.arange(ENDS.shape[1]) % 3 == turn
        plain = {name: given[name] for name in ("src", "dst", "value")}
        ids = {"edge_ids": chosen.nonzero().flatten(), "edge": given["edge"][chosen]}
        parts.append(attention_part(kind, *csr(chosen), **plain, slope=0.2, a=given["a"], **ids, **drawing))
    mass = torch.stack([part[1] for part in parts])
    share = torch.softmax(mass.where(mass > -torch.inf, -1e9), 0)
    found = (torch.stack([part[0] for part in parts]) * share[..., None]).sum(0)
    assert torch.allclose(found, reference, atol=1e-12)
    for made, wanted in zip(torch.autograd.grad(found, leaves, towards), expected):
        assert torch.allclose(made, wanted, atol=1e-12)


def test_a_row_without_edges_has_no_mass() -> None:
    given = inputs(ADDITIVE)
    at = csr(torch.ones(ENDS.shape[1]).bool())
    out, mass = attention_part(ADDITIVE, *at, given["src"], given["dst"], given["value"], 0.2)
    assert bool((mass[1] == -torch.inf).all())
    assert bool((out[1] == 0).all())
    mass[[0, 2, 3]].sum().backward()  # type: ignore[no-untyped-call]
    assert given["src"].grad.isfinite().all()
    # Shares of a row add up to one.
    assert torch.allclose(given["dst"].grad[1], torch.zeros(HEADS, dtype=torch.float64))
