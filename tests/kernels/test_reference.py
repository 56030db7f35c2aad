"""The definitions in plain PyTorch are those of a loop over edges."""

import pytest
import torch
from kernel_checks import csr, values

from weft import draw
from weft.kernels import reference

pytestmark = pytest.mark.gpu

INDPTR, INDICES = csr(5, 4, 12)
ROWS = torch.repeat_interleave(INDPTR.diff())
EDGES = list(zip(INDICES.tolist(), ROWS.tolist()))


def test_sums_and_means_with_weights_and_scales_are_those_of_a_loop() -> None:
    x, weight = values(5, 3, dtype=torch.float64), values(12, dtype=torch.float64)
    src, dst = values(5, seed=1, dtype=torch.float64), values(4, seed=2, dtype=torch.float64)
    for mean in (False, True):
        expected = torch.zeros(4, 3, dtype=torch.float64, device=x.device)
        for edge, (u, v) in enumerate(EDGES):
            share = 1.0 / int(INDPTR.diff()[v]) if mean else 1.0
            expected[v] += share * dst[v] * weight[edge] * src[u] * x[u]
        found = reference.spmm(INDPTR, INDICES, None, x, weight, src, dst, mean)
        torch.testing.assert_close(found, expected)


def test_extremes_count_their_ties() -> None:
    x = values(5, 2).round()
    value, count = reference.extreme(INDPTR, INDICES, x, True)
    for v in range(4):
        near = torch.stack([x[u] for u, w in EDGES if w == v]) if any(w == v for _, w in EDGES) else None
        if near is None:
            assert not count[v].any()
            continue
        assert torch.equal(value[v], near.amax(0))
        assert count[v].tolist() == (near == near.amax(0)).sum(0).tolist()


def test_weights_over_the_edges_of_a_row_are_a_softmax() -> None:
    scores = values(12, 2)
    found = reference.edge_softmax(INDPTR, scores)
    for v in range(4):
        mine = [edge for edge, (_, w) in enumerate(EDGES) if w == v]
        torch.testing.assert_close(found[mine], scores[mine].softmax(0))


def test_a_transpose_has_each_edge_once_by_source() -> None:
    indptr, indices, edges = reference.transpose(INDPTR, INDICES, 5)
    rows = torch.repeat_interleave(indptr.diff())
    assert torch.equal(INDICES[edges.long()].long(), rows)
    assert torch.equal(ROWS[edges.long()], indices.long())
    assert sorted(edges.tolist()) == list(range(12))


def test_draws_are_those_of_the_counter_function() -> None:
    clock, ids, lanes = torch.tensor([2**62, 3, 4]), torch.tensor([0, 7, 2**40]), torch.tensor([0, 5])
    found = reference.draw(clock.cpu(), 2, 1, ids.cpu()[:, None], lanes.cpu()[None])
    key = draw.fold(2**62, 2, 3, 4, 1)
    assert found.tolist() == draw.draw(key, ids.cpu().numpy()[:, None], lanes.cpu().numpy()[None]).tolist()
