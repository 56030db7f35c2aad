"""The head of an edge is a network of both ends and what is known of the edge."""

import pytest
import torch

from weft.errors import InputError
from weft.tasks.edge_head import EdgeHead

WIDTH, RELATIONS = 6, 3
GENERATOR = torch.Generator().manual_seed(0)
SRC = torch.randn(5, WIDTH, generator=GENERATOR, dtype=torch.float64)
ALL = torch.randn(7, WIDTH, generator=GENERATOR, dtype=torch.float64)
DATA = torch.randn(5, 2, generator=GENERATOR, dtype=torch.float64)
RELATION = torch.tensor([2, 0, 2, 1, 0])


@pytest.mark.parametrize("relations", [1, RELATIONS])
@pytest.mark.parametrize("edge_width", [0, 2])
def test_a_head_of_edges_is_an_mlp_of_both_ends_and_what_is_known(edge_width: int, relations: int) -> None:
    torch.manual_seed(0)
    head = EdgeHead(WIDTH, 4, edge_width, num_relations=relations).double()
    for value in head.parameters():
        torch.nn.init.normal_(value)
    data = DATA if edge_width else None
    rows = torch.cat([SRC, ALL[:5], *([DATA] if edge_width else [])], dim=1)
    bias = head.ends.relation[RELATION] if head.ends.relation is not None else 0.0
    expected = head.last(torch.relu(head.ends.linear(rows) + bias))
    out = head(SRC, ALL[:5], RELATION if relations > 1 else None, data)
    assert out.shape == (5, 4)
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert all(value.grad is not None for value in head.parameters())


def test_whole_numbers_known_of_edges_are_read_as_numbers() -> None:
    head = EdgeHead(WIDTH, 1, 1).double()
    count = torch.arange(5)[:, None]
    torch.testing.assert_close(head(SRC, ALL[:5], data=count), head(SRC, ALL[:5], data=count.double()))


def test_what_cannot_be_is_one_line() -> None:
    with pytest.raises(InputError, match=r"expected 0 numbers .* got 2"):
        EdgeHead(WIDTH, 2)(SRC.float(), SRC.float(), data=DATA)
    with pytest.raises(InputError, match="columns must be a positive integer"):
        EdgeHead(WIDTH, 0)
