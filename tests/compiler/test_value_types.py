"""Messages of whole numbers, truth values and several types: the numbers of plain torch, compiled or not."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import weft
from weft.graph.message import compiled as module

N = 40
Message = Callable[[Tensor, Tensor, Tensor], Tensor]

MESSAGES: dict[str, tuple[torch.dtype, Message]] = {
    "two masks": (torch.bool, lambda u, a, b: u + a + b),
    "a sum of masks": (torch.bool, lambda u, a, b: (a + b) * u),
    "comparisons": (torch.bool, lambda u, a, b: ((u > 0) + (a != b)) * u),
    "bytes": (torch.uint8, lambda u, a, b: u + a - b),
    "a product of bytes": (torch.uint8, lambda u, a, b: (a * b) * u),
    "joined bytes": (torch.uint8, lambda u, a, b: 1 - torch.cat([u, a], 1)),
    "joined and doubled": (torch.bool, lambda u, a, b: (lambda x: x + x)(torch.cat([u, a], 1))),
    "joined types": (torch.float64, lambda u, a, b: torch.cat([u, a], 1).sigmoid()),
    "joined and mapped": (torch.int64, lambda u, a, b: torch.cat([u, a], 1) @ torch.ones(8, 3)),
    "taken from a number": (torch.float32, lambda u, a, b: torch.rsub(u, 1.0, alpha=2.0) * a),
    "a mean in halves": (torch.float16, lambda u, a, b: (a * 3000).mean(-1, keepdim=True) * u),
    "a norm in halves": (torch.float16, lambda u, a, b: F.layer_norm(a * 300, (4,)).float() * u),
}


def rows(dtype: torch.dtype, seed: int) -> Tensor:
    draw = torch.Generator().manual_seed(seed)
    if dtype == torch.bool:
        return torch.rand(N, 4, generator=draw) > 0.5
    if not dtype.is_floating_point:
        return torch.randint(100, 256, (N, 4), generator=draw).to(dtype)
    return torch.randn(N, 4, generator=draw).to(dtype)


@pytest.mark.parametrize(("dtype", "message"), MESSAGES.values(), ids=MESSAGES)
def test_types_keep_the_rules_of_torch(
    dtype: torch.dtype, message: Message, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LEAST_NUMBERS", 0)
    draw = torch.Generator().manual_seed(1)
    edges = torch.randint(0, N - 2, (2, 500), generator=draw)
    block = weft.Graph.from_edges(edges, num_nodes=N).block()
    u, a, b = rows(torch.float32, 2), rows(dtype, 3), rows(dtype, 4)
    have = block.propagate(message, src=[u, a], dst=[b], reduce="max")
    source = block.indices.long()
    target = torch.repeat_interleave(torch.arange(N), block.indptr.diff())
    made = message(u[source], a[source], b[target])
    want = torch.full((N, made.shape[1]), -torch.inf, dtype=made.dtype)
    want.scatter_reduce_(0, target[:, None].expand_as(made), made, "amax")
    want[block.indptr.diff() == 0] = 0
    torch.testing.assert_close(have, want, rtol=2e-3 if dtype == torch.float16 else 1e-5, atol=1e-6)


def test_sums_of_products_under_autocast_are_of_32_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LEAST_NUMBERS", 0)
    ends = torch.arange(N)
    block = weft.Graph.from_edges(torch.stack([ends, ends.roll(1)])).block()
    u, a = rows(torch.float32, 2).repeat(1, 16), rows(torch.float32, 3)[:1].repeat(1, 16)
    with torch.autocast("cpu", torch.bfloat16):
        have = block.propagate(
            lambda u, v: (u * a).sum(-1, keepdim=True) * (v * a).sum(-1, keepdim=True), [u], [u]
        )
    scores = (u * a).sum(-1, keepdim=True)
    torch.testing.assert_close(have, scores[block.indices.long()] * scores, rtol=1e-5, atol=1e-4)
