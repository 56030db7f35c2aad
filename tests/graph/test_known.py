"""Known links are found by relation, source and target, from memory and from a file."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from weft.errors import FormatError, GraphError
from weft.graph import Graph
from weft.graph.known import Known
from weft.graph.node_pairs import Pairs


def make_graph() -> Graph:
    return Graph.from_edges([[0, 0, 1, 4, 4], [1, 1, 2, 0, 3]], edge_type=torch.tensor([0, 1, 0, 1, 1]))


def test_links_are_known_by_relation() -> None:
    known = Known.of(make_graph(), Pairs(torch.tensor([3]), torch.tensor([3]), relation=torch.tensor([1])))
    src, dst = torch.cartesian_prod(torch.arange(5), torch.arange(5)).T
    found = {
        (relation, int(u), int(v))
        for relation in (0, 1)
        for u, v, hit in zip(src, dst, known.hits(src, dst, torch.full_like(src, relation)))
        if hit
    }
    assert found == {(0, 0, 1), (1, 0, 1), (0, 1, 2), (1, 4, 0), (1, 4, 3), (1, 3, 3)}
    assert len(known) == 6
    with pytest.raises(GraphError, match="tell the relation of each"):
        known.hits(src, dst)


def test_all_partners_of_an_end_are_found_from_either_side() -> None:
    known = Known.of(make_graph())
    rows, nodes = known.partners(torch.tensor([4, 0, 2, 0]), torch.tensor([1, 0, 0, 1]))
    assert list(zip(rows.tolist(), nodes.tolist())) == [(0, 0), (0, 3), (1, 1), (3, 1)]
    rows, nodes = known.partners(torch.tensor([1, 3, 0]), torch.tensor([0, 1, 0]), side="src")
    assert list(zip(rows.tolist(), nodes.tolist())) == [(0, 0), (1, 4)]


def test_pairs_of_an_undirected_relation_are_known_both_ways() -> None:
    graph = Graph.from_edges([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=4)
    pair = Pairs(torch.tensor([2]), torch.tensor([3]))
    turned = torch.tensor([3]), torch.tensor([2])
    assert Known.of(graph, pair).hits(*turned).item()
    assert not Known.of(graph, pair, undirected=False).hits(*turned).item()
    directed = Graph.from_edges([[0], [1]], num_nodes=4)
    assert not Known.of(directed, pair).hits(*turned).item()


def test_a_file_gives_the_same_answers_and_others_are_refused(tmp_path: Path) -> None:
    known = Known.of(make_graph())
    known.save(tmp_path / "known.npy")
    mapped = Known.map(tmp_path / "known.npy")
    assert isinstance(mapped.keys, np.memmap), "mapped, not read"
    assert np.array_equal(mapped.keys, known.keys)
    assert (mapped.num_nodes, mapped.num_relations) == (5, 2)
    src = torch.arange(5)
    kinds = torch.zeros(5, dtype=torch.int64)
    assert torch.equal(mapped.hits(src, src + 1, kinds), known.hits(src, src + 1, kinds))
    np.save(tmp_path / "other.npy", np.zeros(3))
    (tmp_path / "text.npy").write_text("no array")
    for name in ("other", "text", "missing"):
        with pytest.raises(FormatError, match=rf"{name}\.npy: (no|damaged)"):
            Known.map(tmp_path / f"{name}.npy")


@pytest.mark.parametrize(("old", "new"), [(b"(5,)", b"(((("), (b"(5,)", b"('a'"), (b"'<i8'", b"'|O' ")])
def test_odd_headers_of_known_links_are_one_line(tmp_path: Path, old: bytes, new: bytes) -> None:
    path = tmp_path / "known.npy"
    Known(np.array([1, 2, 3]), 4).save(path)
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))
    with pytest.raises(FormatError) as caught:
        Known.map(path)
    assert "\n" not in str(caught.value)


FREEBASE = 86_054_151, 14_824
"""Nodes and relations of a graph with more links than 64 bits can number, of which it has a few."""


def freebase(links: list[tuple[int, int, int]]) -> Known:
    relation, src, dst = torch.tensor(links).T
    return Known.between((relation * FREEBASE[0] + src).numpy(), dst.numpy(), *FREEBASE)


def test_links_are_known_where_64_bits_cannot_number_all_that_may_be(tmp_path: Path) -> None:
    last, most = FREEBASE[0] - 1, FREEBASE[1] - 1
    links = [(most, last, last), (0, 0, 0), (most, last, 3), (7, last, 3), (7, 2, last), (7, 2, last)]
    made = freebase(links)
    made.save(tmp_path / "known.npy")
    for known in (made, Known.map(tmp_path / "known.npy")):
        assert (len(known), len(set(links))) == (5, 5)
        others = [(most, 2, last), (6, last, 3), (most, last, 2), (0, 0, last)]
        relation, src, dst = torch.tensor(links + others).T
        assert known.hits(src, dst, relation).tolist() == [True] * 6 + [False] * 4
        rows, nodes = known.partners(torch.tensor([last, 5, 2]), torch.tensor([most, 7, 7]))
        assert list(zip(rows.tolist(), nodes.tolist())) == [(0, 3), (0, last), (2, last)]
        rows, nodes = known.partners(torch.tensor([3, 3, 3]), torch.tensor([most, 7, 8]), side="src")
        assert list(zip(rows.tolist(), nodes.tolist())) == [(0, last), (1, last)]


def test_either_way_of_numbering_gives_the_same_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    random = torch.Generator().manual_seed(0)
    ends, kinds = torch.randint(40, (2, 300), generator=random), torch.randint(5, (300,), generator=random)
    graph = Graph.from_edges(ends, num_nodes=40, edge_type=kinds)
    src, dst = torch.cartesian_prod(torch.arange(40), torch.arange(40)).T
    asked = torch.arange(40).repeat(5), torch.arange(5).repeat_interleave(40)

    def answers() -> list[Tensor]:
        known = Known.of(graph)
        found = [known.hits(src, dst, torch.full_like(src, kind)) for kind in range(5)]
        for side in ("dst", "src"):
            found += known.partners(*asked, side=side)
            found.append(known.crossed(asked[0], torch.tensor([3, 9, 3]), asked[1], side=side))
        return found

    expected = answers()
    monkeypatch.setattr("weft.graph.known.counted", lambda num_nodes, num_relations: False)
    assert Known.of(graph).heads is not None
    for one, other in zip(answers(), expected, strict=True):
        assert torch.equal(one, other)


def test_more_links_than_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="more than 64 bits can number"):
        Known(np.empty(0, np.int64), 2**61, 4, heads=np.empty(0, np.int64))
    np.save(tmp_path / "known.npy", np.array([*FREEBASE, 9, 1, 2], np.int64))
    with pytest.raises(FormatError, match="damaged, known links without their heads"):
        Known.map(tmp_path / "known.npy")


def test_no_links_are_known_of_a_graph_without_edges() -> None:
    known = Known.of(Graph.from_edges(torch.empty(2, 0, dtype=torch.int64), num_nodes=3))
    assert not known.hits(torch.arange(3), torch.arange(3)).any()
    assert [part.tolist() for part in known.partners(torch.arange(3))] == [[], []]


@pytest.mark.parametrize("side", ["dst", "src"])
@pytest.mark.parametrize("others", [[3, 0, 3, 1, 4, 2], [1], []], ids=str)
def test_nodes_crossed_with_others_are_linked_where_the_pair_is_known(
    side: Literal["dst", "src"], others: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    known = Known.of(make_graph())
    ends, relation = torch.tensor([4, 0, 2, 0, 1]), torch.tensor([1, 0, 0, 1, 0])
    columns = torch.tensor(others, dtype=torch.int64)
    pair = (ends[:, None], columns[None]) if side == "dst" else (columns[None], ends[:, None])
    expected = known.hits(*pair, relation[:, None])
    assert torch.equal(known.crossed(ends, columns, relation, side=side), expected)
    if len(others) > 1:  # few links: none is looked for among all pairs
        monkeypatch.setattr(Known, "hits", None)
        assert torch.equal(known.crossed(ends, columns, relation, side=side), expected)
