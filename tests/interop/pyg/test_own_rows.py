"""PyG's convolutions on own rows: what messages read travels, in every layout, on one, two and four ranks."""

from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from weft.interop.pyg.trial import own_width

pyg = pytest.importorskip("torch_geometric.nn")
import pyg_jobs  # noqa: E402
from ranks import run_ranks  # noqa: E402

from weft.comm.group import Group  # noqa: E402


@pytest.mark.parametrize(
    ("make", "width"),
    [
        (lambda: pyg.GATConv(16, 3, heads=2), 3 * 2 + 2),
        pytest.param(
            lambda: pyg.GATv2Conv(16, 3, heads=2, add_self_loops=False), 3 * 2, marks=pytest.mark.slow
        ),
        pytest.param(lambda: pyg.GCNConv(16, 4), 4, marks=pytest.mark.slow),
        pytest.param(lambda: pyg.TransformerConv(16, 3), 3 + 3, marks=pytest.mark.slow),
        pytest.param(lambda: pyg.SAGEConv(16, 4), 16, marks=pytest.mark.slow),
    ],
)
def test_a_row_travels_as_what_messages_read_of_it(make: Any, width: int) -> None:
    assert own_width(weft.nn.PyG(make())) == width


class Centred(pyg.MessagePassing):  # type: ignore[misc,name-defined]
    """Reads the rows of sources itself, where it has but its own."""

    def forward(self, x: Any, edge_index: Tensor) -> Any:
        src, dst = x if isinstance(x, tuple) else (x, x)
        return self.propagate(edge_index, x=x, difference=src[edge_index[0]] - dst[edge_index[1]])

    def message(self, x_j: Tensor, difference: Tensor) -> Tensor:
        return x_j * difference


def test_a_convolution_that_reads_rows_of_others_itself_is_not_run_on_own_rows() -> None:
    assert own_width(weft.nn.PyG(Centred())) == 0


def test_drawn_attention_sends_rows_and_says_why_where_edges_of_a_row_are_apart() -> None:
    layer = weft.nn.PyG(pyg.GATConv(6, 3, dropout=0.5, add_self_loops=False))
    graph = weft.datasets.open_dataset(name="community", nodes=50)
    block = graph.block()
    block.whole_rows = False
    with pytest.raises(weft.InputError, match=r"GATConv needs all incoming .* draws random numbers"):
        layer(block, torch.randn(50, 6))
    assert layer.eval()(block, torch.randn(50, 6)).shape == (50, 3)


def check_bytes(ranks: list[dict[str, Any]]) -> None:
    for layout in ranks[0]:
        assert all(rank[layout]["same"] for rank in ranks), layout
        ways = ("own", "gat", "raw")
        sent = {way: sum(rank[layout].get(way, 0) for rank in ranks) for way in ways}
        assert 0 < sent["own"] <= sent["gat"], (layout, sent)
        if layout in ("halo", "sequential"):  # which fetches rows again in backward
            assert (1.5 if layout == "halo" else 1.1) * sent["own"] < sent["raw"], (layout, sent)


@pytest.mark.slow
def test_one_process_gives_its_numbers() -> None:
    assert pyg_jobs.equal_one_process(Group.alone()) == []


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 4])
def test_every_layout_gives_the_numbers_of_one_process(size: int) -> None:
    ranks = run_ranks(size, pyg_jobs.promises)
    assert [rank["wrong"] for rank in ranks] == [[]] * size
    check_bytes([rank["bytes"] for rank in ranks])
