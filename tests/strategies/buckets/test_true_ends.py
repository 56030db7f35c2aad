"""True ends among candidates are found as by asking for each of them."""

import pytest
import torch

from weft.kernels import native
from weft.strategies.buckets.true_ends import TrueEnds


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("core", "before"), [(True, 1), (False, 1), (True, 0), (False, 0)])
def test_candidates_that_make_a_true_edge_are_left_out(core: bool, before: int, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(1)
    stays, kind, moves = (torch.randint(0, most, (60,), generator=generator) for most in (7, 3, 9))
    true = {*zip(stays.tolist(), kind.tolist(), moves.tolist())}
    order = torch.randperm(60, generator=generator)
    ends = TrueEnds.of(stays, kind, moves, 9).take(order)
    candidates = torch.randint(0, 9, (3, 12), generator=generator)  # each several times
    scores = torch.zeros(3, 4, before + 12, dtype=dtype)
    edges = slice(20, 32)
    if core:
        assert native.available()
        ends.take(edges).leave_out(scores, candidates)
        ends.take(edges).leave_out(scores, candidates)  # the table is as it was
    else:
        with native.disabled():
            ends.take(edges).leave_out(scores, candidates)
    for at, edge in enumerate(order[edges].tolist()):
        chunk, row = divmod(at, 4)
        found = scores[chunk, row].isinf().tolist()
        asked = [(int(stays[edge]), int(kind[edge]), node) in true for node in candidates[chunk].tolist()]
        assert found == [*[False] * before, *asked]
        assert any(asked)


def test_no_edge_has_nothing_to_leave_out() -> None:
    none = torch.zeros(0, dtype=torch.int64)
    ends = TrueEnds.of(none, none, none, 3)
    scores = torch.zeros(1, 0, 3)
    ends.leave_out(scores, torch.tensor([[0, 1]]))
    assert scores.numel() == 0
