"""Messages over parts of the edges, at once and in chunks: what stands beside them merges into the whole."""

from typing import Any

import pytest
import torch
from torch import Tensor

from weft.graph import Block
from weft.graph.message import propagate as whole
from weft.graph.message.partial import propagate_part
from weft.graph.message.reduction import Propagation

ENDS = torch.tensor([[0, 1, 2, 3, 3, 3, 4, 1, 0], [0, 0, 0, 0, 2, 2, 2, 3, 3]])
ROWS = 5


def block_of(chosen: Tensor) -> Block:
    """Return the edges that a mask keeps; row 1 and row 4 have none."""
    src, dst = ENDS[:, chosen]
    counts = torch.bincount(dst, minlength=ROWS)
    return Block(torch.cat([counts.new_zeros(1), counts.cumsum(0)]), src.int(), num_src=ROWS)


def message(reduce: str, u: Tensor, v: Tensor, weight: Tensor) -> Any:
    """Return a message with ties (3 → 2 twice), or a score and a value."""
    made = (u @ weight) * v
    return (made[:, :2], made.reshape(-1, 2, 2)) if reduce == "softmax" else made


def merged(reduce: str, parts: list[tuple[Tensor, Tensor | None]]) -> Tensor:
    """Return the whole from its parts by the definition."""
    values = torch.stack([value for value, _ in parts])
    if reduce == "sum":
        return values.sum(0)
    beside = torch.stack([each for _, each in parts if each is not None])
    if reduce == "softmax":
        share = torch.softmax(beside.where(beside > -torch.inf, -1e9), 0)
        return (values * share[..., None]).sum(0)
    lowest = -torch.inf if reduce == "max" else torch.inf
    masked = values.where(beside > 0, lowest)
    top = masked.amax(0) if reduce == "max" else masked.amin(0)
    attaining = beside * (masked == top)
    share = attaining / attaining.sum(0).clamp(min=1)
    return (values * share).sum(0)


@pytest.mark.parametrize("reduce", ["sum", "max", "min", "softmax"])
@pytest.mark.parametrize("chunk", [4, 1 << 22])
def test_parts_merge_into_the_whole_with_its_gradients(
    reduce: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw = torch.Generator().manual_seed(3)
    shapes = ((ROWS, 3), (ROWS, 4), (3, 4))
    leaves = [torch.randn(s, dtype=torch.float64, generator=draw).requires_grad_() for s in shapes]
    h, own, weight = leaves

    def run(u: Tensor, v: Tensor, w: Tensor) -> Any:
        return message(reduce, u, v, w)

    every = torch.ones(ENDS.shape[1]).bool()
    reference = block_of(every).propagate(run, src=[h], dst=[own], reduce=reduce, params=[weight])
    towards = torch.randn(reference.shape, dtype=torch.float64, generator=draw)
    expected = torch.autograd.grad(reference, leaves, towards)

    monkeypatch.setattr(whole, "CHUNK_ELEMENTS", chunk)
    parts = []
    for turn in range(3):
        part = block_of(torch.arange(ENDS.shape[1]) % 3 == turn)
        parts.append(propagate_part(part, Propagation(run, [h], [own], [], reduce, [weight])))
    found = merged(reduce, parts)
    assert torch.allclose(found, reference, atol=1e-12)
    for made, wanted in zip(torch.autograd.grad(found, leaves, towards), expected):
        assert torch.allclose(made, wanted, atol=1e-12)


def test_no_edges_give_nothing_to_merge() -> None:
    none = block_of(torch.zeros(ENDS.shape[1]).bool())
    h = torch.ones(ROWS, 2)
    value, count = propagate_part(none, Propagation(lambda u: u, [h], reduce="max"))
    assert (tuple(value.shape), count is not None and int(count.sum())) == ((ROWS, 2), 0)
    value, mass = propagate_part(none, Propagation(lambda u: (u[:, 0], u), [h], reduce="softmax"))
    assert mass is not None
    assert bool((mass == -torch.inf).all())
