"""Negatives are the same whoever draws them, of the right type, and no known links."""

from typing import Any

import pytest
import torch
from torch import Tensor

from weft.errors import GraphError, InputError
from weft.graph import Graph
from weft.graph.known import Known
from weft.graph.node_pairs import Pairs
from weft.tasks.negatives import Drawn, Negatives, Nodes


def random_graph(num_nodes: int = 40) -> Graph:
    made = torch.Generator().manual_seed(0)
    return Graph.from_edges(torch.randint(num_nodes, (2, 300), generator=made), num_nodes=num_nodes)


def pairs_of(graph: Graph, **data: Any) -> Pairs:
    src, dst = graph.edge_index
    kinds = graph.given_edge_type()
    return Pairs(src, dst, relation=None if kinds is None else kinds.long(), **data)


def typed_graph() -> Graph:
    """Return authors 0 … 4, papers 5 … 10 and the one venue 11."""
    return Graph.from_types(
        {"author": {"num_nodes": 5}, "paper": {"num_nodes": 6}, "venue": {"num_nodes": 1}},
        {
            ("author", "writes", "paper"): [[0, 1, 2, 0], [0, 1, 2, 5]],
            ("paper", "cites", "paper"): [[3, 4], [4, 5]],
            ("paper", "in", "venue"): [[0, 1], [0, 0]],
            ("author", "reads", "paper"): [[0, 3], [1, 0]],
        },
    )


def chi_square(counts: Tensor, weight: Tensor) -> float:
    expected = (weight / weight.sum() * counts.sum())[weight > 0]
    assert counts[weight == 0].sum() == 0
    return float(((counts[weight > 0] - expected) ** 2 / expected).sum())


OWN = [{"name": "uniform"}, {"name": "degree"}, {"name": "uniform", "exclude": "known", "side": "both"}]
SHARED: list[dict[str, Any]] = [
    {"name": "joint", "count": 7, "side": "both", "exclude": "known"},
    {"name": "inbatch", "side": "both"},
    {"name": "hard", "count": 2, "pool": 9},
    {"name": "all", "exclude": "known"},
]


@pytest.mark.parametrize("options", [*({**some, "count": 5} for some in OWN), *SHARED], ids=str)
@pytest.mark.parametrize("holders", [1, 2, 4])
def test_any_number_of_holders_draws_the_same(options: dict[str, Any], holders: int) -> None:
    graph = random_graph()
    pairs, among, known = pairs_of(graph), Nodes.of(graph), Known.of(graph)
    negatives = Negatives(**options, seed=3)
    whole = negatives.draw(pairs, 2, among=among, known=known, step=4)
    owner = pairs.dst % holders  # a pair lies with the owner of its target
    for holder in range(holders):
        mine = (owner == holder).nonzero().flatten().flip(0)  # and in an order of its own
        part = negatives.draw(pairs.take(mine), 2, among=among, known=known, step=4, batch=pairs)
        rows = torch.cat([mine + side * len(pairs) for side in range(len(negatives.sides))])
        assert torch.equal(part.masked, whole.masked[rows])
        assert torch.equal(part.nodes, whole.nodes if whole.shared else whole.nodes[rows])


@pytest.mark.parametrize(
    "options", [{"name": "uniform", "count": 3}, {"name": "joint", "count": 20}], ids=str
)
def test_epochs_seeds_and_steps_differ_and_evaluation_does_not(options: dict[str, Any]) -> None:
    graph = random_graph()
    pairs, among = pairs_of(graph), Nodes.of(graph)

    def nodes(epoch: int | None, seed: int = 0, step: int = 0) -> list[Any]:
        drawn: list[Any] = (
            Negatives(**options, seed=seed).draw(pairs, epoch, among=among, step=step).nodes.tolist()
        )
        return drawn

    assert nodes(0) == nodes(0)
    assert nodes(0) != nodes(1)
    assert nodes(0) != nodes(0, seed=1)
    assert nodes(None) == nodes(None), "the same whenever a model is evaluated"
    assert nodes(None) not in (nodes(0), nodes(1))
    assert (nodes(0, step=1) == nodes(0)) is (options["name"] == "uniform")


def test_ends_are_drawn_uniformly_or_by_their_degree() -> None:
    graph = random_graph()
    pairs = pairs_of(graph)
    among = Nodes.of(graph)
    for options, weight in (
        ({"name": "uniform"}, torch.ones(40)),
        ({"name": "degree"}, graph.in_degree().pow(0.75)),
        ({"name": "degree", "alpha": 1.0}, graph.in_degree()),
        ({"name": "degree", "alpha": 2.0, "side": "src"}, graph.out_degree().pow(2)),
        ({"name": "degree", "alpha": 0.0}, torch.ones(40)),
    ):
        one = Pairs(torch.zeros(1, dtype=torch.int64), torch.zeros(1, dtype=torch.int64), torch.tensor([5]))
        side = options.get("side", "dst")
        drawn = Negatives(count=20_000, **options).draw(one, 0, among=among).nodes  # type: ignore[arg-type]
        weight = weight.double().clone()
        weight[0] = 0  # its own end
        assert chi_square(torch.bincount(drawn[0], minlength=40).double(), weight) < 80, (options, side)
    for alpha, weight in ((None, torch.ones(40)), (0.75, graph.in_degree().pow(0.75))):
        joint = Negatives("joint", count=20_000, alpha=alpha)
        drawn = joint.draw(pairs.take(torch.tensor([0])), 0, among=among).nodes
        assert chi_square(torch.bincount(drawn, minlength=40).double(), weight.double()) < 80, alpha


def test_a_pairs_own_end_is_never_a_negative() -> None:
    graph = random_graph(4)
    pairs, among = pairs_of(graph), Nodes.of(graph)
    for options in (
        {"name": "uniform", "count": 9},
        {"name": "joint", "count": 9},
        {"name": "inbatch"},
        {"name": "all"},
    ):
        for side in ("dst", "src"):
            drawn = Negatives(**options, side=side).draw(pairs, 0, among=among)  # type: ignore[arg-type]
            own = pairs.dst if side == "dst" else pairs.src
            nodes = drawn.nodes.expand(len(pairs), -1)
            assert not bool(((nodes == own[:, None]) & ~drawn.masked).any())
            assert bool((~drawn.masked).any(1).all())


def test_known_links_of_the_same_relation_are_left_out_and_others_are_not() -> None:
    # In relation 0, 0 leads to 1 and 2; in relation 1 to 3 alone.
    graph = Graph.from_edges([[0, 0, 0], [1, 2, 3]], edge_type=torch.tensor([0, 0, 1]), num_nodes=5)
    pairs, among, known = pairs_of(graph), Nodes.of(graph), Known.of(graph)
    for options in ({"name": "uniform", "count": 50}, {"name": "joint", "count": 50}, {"name": "all"}):
        drawn = Negatives(**options, exclude="known").draw(pairs, 0, among=among, known=known)  # type: ignore[arg-type]
        assert [found(drawn, row) for row in range(3)] == [{3, 4}, {3, 4}, {1, 2, 4}]
        drawn = Negatives(**options).draw(pairs, 0, among=among, known=known)  # type: ignore[arg-type]
        assert found(drawn, 0) == {0, 2, 3, 4}, "not asked for"
    with pytest.raises(InputError, match="exclude='known' needs the known links"):
        Negatives(count=1, exclude="known").draw(pairs, 0, among=among)


def found(drawn: Drawn, row: int) -> set[int]:
    nodes = drawn.nodes if drawn.shared else drawn.nodes[row]
    return set(nodes[~drawn.masked[row]].tolist())


def test_both_sides_replace_targets_then_sources() -> None:
    graph = Graph.from_edges([[0, 1], [1, 2]], num_nodes=4)
    pairs, among, known = pairs_of(graph), Nodes.of(graph), Known.of(graph)
    for options in ({"name": "uniform", "count": 40}, {"name": "all"}):
        drawn = Negatives(**options, side="both", exclude="known").draw(pairs, 0, among=among, known=known)  # type: ignore[arg-type]
        # 0 → ?, 1 → ?, ? → 1, ? → 2
        assert [found(drawn, row) for row in range(4)] == [{2, 3}, {0, 3}, {2, 3}, {0, 3}]


@pytest.mark.parametrize("name", ["uniform", "degree", "joint", "inbatch", "all"])
def test_ends_are_of_the_type_of_the_relation(name: str) -> None:
    graph = typed_graph()
    target = ["author writes paper", "paper cites paper", "author reads paper"]
    src, dst = graph.edge_index
    kinds = graph.given_edge_type()
    assert kinds is not None
    chosen = kinds != 2
    pairs = Pairs(src[chosen], dst[chosen], relation=kinds[chosen].long())
    among = Nodes.of(graph, target)
    count = {} if name in ("inbatch", "all") else {"count": 30}
    drawn = Negatives(name, side="both", **count).draw(pairs, 0, among=among)  # type: ignore[arg-type]
    for row, end in enumerate(torch.cat([pairs.dst, pairs.src]).tolist()):
        papers = end >= 5
        assert found(drawn, row)
        assert all((node >= 5) is papers and node < 11 for node in found(drawn, row))


def test_a_type_with_one_node_is_refused_and_its_other_side_is_not() -> None:
    graph = typed_graph()
    among = Nodes.of(graph, "paper in venue")
    pairs = Pairs(torch.tensor([5]), torch.tensor([11]), relation=torch.tensor([2]))
    for name in ("uniform", "joint", "all"):
        count = {} if name == "all" else {"count": 2}
        with pytest.raises(GraphError, match="there is one 'venue', so a pair has no other dst; side='src'"):
            Negatives(name, **count).draw(pairs, 0, among=among)  # type: ignore[arg-type]
    assert found(Negatives(count=2, side="src").draw(pairs, 0, among=among), 0) <= {6, 7, 8, 9, 10}


def test_a_source_that_is_joined_to_all_has_its_negatives_masked() -> None:
    graph = Graph.from_edges([[0, 0, 0, 1], [1, 2, 3, 2]], num_nodes=4)
    pairs, among, known = pairs_of(graph), Nodes.of(graph), Known.of(graph)
    for options in ({"name": "uniform", "count": 3}, {"name": "all"}, {"name": "joint", "count": 6}):
        drawn = Negatives(**options, exclude="known").draw(pairs, 0, among=among, known=known)  # type: ignore[arg-type]
        assert drawn.masked[:3].all()
        assert found(drawn, 3) <= {0, 3}
        assert 0 <= int(drawn.nodes.min()) <= int(drawn.nodes.max()) < 4, "rows can be read all the same"
    own = Negatives(count=3, exclude="known").draw(pairs, 0, among=among, known=known)
    assert not own.masked[3].any()


def test_the_few_free_nodes_are_found() -> None:
    """997 of 1,000 are taken: what is left is drawn again, then looked for."""
    graph = Graph.from_edges(
        torch.stack([torch.zeros(997, dtype=torch.int64), torch.arange(1, 998)]), num_nodes=1000
    )
    among, known = Nodes.of(graph), Known.of(graph)
    pairs = pairs_of(graph).take(torch.arange(5))
    drawn = Negatives(count=40, exclude="known").draw(pairs, 0, among=among, known=known)
    assert not drawn.masked.any()
    assert set(drawn.nodes.flatten().tolist()) <= {998, 999}


@pytest.mark.parametrize("floating", [True, False])
def test_only_nodes_that_are_there_already_stand_for_an_end(floating: bool) -> None:
    time = torch.tensor([0, 5, 1, 9, 3, 2])
    graph = Graph.from_edges([[0, 0, 0], [1, 2, 3]], num_nodes=6)
    graph = graph.with_data(time=time.double() if floating else time)
    pairs, among = pairs_of(graph, time=torch.tensor([5, 2, 9])), Nodes.of(graph)
    there = [{0, 2, 4, 5}, {0, 5}, {0, 1, 2, 4, 5}]
    for options in ({"name": "uniform", "count": 60}, {"name": "joint", "count": 60}, {"name": "all"}):
        drawn = Negatives(**options, temporal=True).draw(pairs, 0, among=among)  # type: ignore[arg-type]
        assert [found(drawn, row) for row in range(3)] == there
    one = Negatives(count=10_000, temporal=True).draw(pairs.take(torch.tensor([0])), 0, among=among).nodes
    assert chi_square(torch.bincount(one[0], minlength=6).double(), torch.tensor([1.0, 0, 1, 0, 1, 1])) < 20
    late = Negatives(count=2, temporal=True).draw(
        Pairs(torch.tensor([0]), torch.tensor([1]), time=torch.tensor([-1])), 0, among=among
    )
    assert late.masked.all(), "nobody was there"
    with pytest.raises(GraphError, match="the pairs have no 'time'"):
        Negatives(count=2, temporal=True).draw(pairs_of(graph), 0, among=among)
    with pytest.raises(GraphError, match="the nodes have no 'time'"):
        Negatives(count=2, temporal=True).draw(pairs, 0, among=Nodes.of(random_graph()))


def test_in_batch_hits_are_masked_and_corrected_by_how_often_they_come() -> None:
    graph = Graph.from_edges([[0, 1, 2, 3, 0], [4, 4, 5, 5, 5]], num_nodes=6)
    pairs = pairs_of(graph)
    among, known = Nodes.of(graph, pairs=pairs), Known.of(graph)
    drawn = Negatives("inbatch", exclude="known").draw(pairs, 0, among=among, known=known)
    assert drawn.nodes.tolist() == [4, 4, 5, 5, 5]
    assert drawn.masked.tolist() == [
        [True] * 5,  # 0 is joined to 4, and by another pair to 5
        [True, True, False, False, False],
        [False, False, True, True, True],
        [False, False, True, True, True],
        [True] * 5,
    ]
    assert drawn.log_q is not None
    torch.testing.assert_close(drawn.log_q.exp(), torch.tensor([0.4, 0.4, 0.6, 0.6, 0.6]).double())
    both = Negatives("inbatch", side="both").draw(pairs, 0, among=among)
    assert both.masked.shape == (10, 10)
    assert both.masked[:5, 5:].all(), "sources do not stand for targets"
    assert both.masked[5:, :5].all()


def test_a_correction_is_of_the_nodes_of_the_same_type() -> None:
    among = Nodes.of(typed_graph(), ["author writes paper", "paper cites paper"])
    # Targets are papers 0, 1, 2, 5, 4, 5; sources authors 0, 1, 2, 0 and papers 3, 4.
    assert among.log_q(torch.tensor([10, 5]), "dst").exp().tolist() == pytest.approx([2 / 6, 1 / 6])
    assert among.log_q(torch.tensor([0, 8]), "src").exp().tolist() == pytest.approx([2 / 4, 1 / 2])


def test_the_two_sides_of_a_pair_are_drawn_apart() -> None:
    graph = random_graph()
    drawn = Negatives("uniform", 4, "both").draw(pairs_of(graph), 0, among=Nodes.of(graph))
    targets, sources = drawn.nodes.chunk(2)
    assert float((targets == sources).double().mean()) < 0.1, "by chance one in 40"


def test_the_chance_of_a_node_does_not_depend_on_who_holds_the_pair() -> None:
    """Drawn from a worker's own nodes, half of them would never be seen by a pair."""
    graph = random_graph()
    pairs, among = pairs_of(graph), Nodes.of(graph)
    mine = pairs.take(pairs.dst < 20)
    drawn = Negatives(count=200).draw(mine, 0, among=among).nodes.flatten()
    counts = torch.bincount(drawn, minlength=40).double()
    assert 0.45 < float(counts[:20].sum() / counts.sum()) < 0.51


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "unifrom"}, "name must be one of 'uniform'"),
        ({"side": "tail"}, "side must be one of"),
        ({"exclude": "all"}, "exclude must be one of None, 'known'"),
        ({"alpha": 0.5}, "alpha goes with name='degree'"),
        ({"name": "joint", "alpha": 0.5, "side": "both"}, "no degree of one; side='dst' or 'src'"),
        ({"name": "all", "count": 5}, "leave count out"),
        ({"name": "hard", "count": 5}, "needs pool"),
        ({"name": "joint", "pool": 5}, "needs pool"),
        ({"name": "hard", "count": 5, "pool": 4}, "a pool of 4 has no 5 best"),
        ({"count": 0}, "count must be a whole number"),
    ],
    ids=str,
)
def test_what_cannot_be_drawn_is_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        Negatives(**options)
