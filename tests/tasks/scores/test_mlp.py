"""A network of both ends holds few rows at a time, and reads what is known of pairs."""

from typing import Any

import pytest
import torch

from weft.errors import InputError
from weft.tasks.scores import make_scorer

WIDTH = 6
GENERATOR = torch.Generator().manual_seed(0)
SRC = torch.randn(5, WIDTH, generator=GENERATOR, dtype=torch.float64)
ALL = torch.randn(7, WIDTH, generator=GENERATOR, dtype=torch.float64)
DATA = torch.randn(5, 2, generator=GENERATOR, dtype=torch.float64)
RELATION = torch.tensor([2, 0, 2, 1, 0])


def test_an_mlp_of_many_candidates_holds_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = make_scorer("mlp", WIDTH, num_relations=3).double()
    expected = scorer.against(SRC, ALL, RELATION)
    monkeypatch.setattr("weft.tasks.scores.mlp._AT_ONCE", 2 * ALL.numel())
    torch.testing.assert_close(scorer.against(SRC, ALL, RELATION), expected)


def test_an_mlp_reads_what_is_known_of_pairs() -> None:
    torch.manual_seed(0)
    scorer: Any = make_scorer({"name": "mlp", "hidden": 9}, WIDTH, edge_width=2).double()
    assert scorer.ends.linear.weight.shape == (9, 2 * WIDTH + 2)
    rows = torch.cat([SRC, ALL[:5], DATA], dim=1)
    expected = scorer.last(torch.relu(scorer.ends.linear(rows))).flatten()
    torch.testing.assert_close(scorer(SRC, ALL[:5], data=DATA), expected)
    beside = scorer(SRC, ALL[:5][:, None], data=DATA[:, None])
    torch.testing.assert_close(beside.flatten(), expected)
    with pytest.raises(InputError, match="expected 2 numbers that are known of a pair, got none"):
        scorer.against(SRC, ALL)
