"""Ranks among all nodes are those of a loop over candidates, however these are cut."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from weft.datasets import open_dataset
from weft.errors import InputError
from weft.graph.known import Known
from weft.graph.node_pairs import Pairs
from weft.tasks import among_all
from weft.tasks.among_all import AmongAll
from weft.tasks.choose import TaskChoice
from weft.tasks.negatives import Nodes, ends_of
from weft.tasks.ranking import Ranks
from weft.tasks.scores import make_scorer, scorers

NODES, WIDTH, RELATIONS = 13, 4, 3
MADE = torch.Generator().manual_seed(0)
TRIPLES = torch.unique(
    torch.stack([torch.randint(size, (60,), generator=MADE) for size in (NODES, RELATIONS, NODES)], 1), dim=0
)
ROWS = torch.randn(NODES, WIDTH, generator=MADE)
TESTED = TRIPLES[torch.randperm(len(TRIPLES), generator=MADE)[:17]]
DATA = Path(__file__).parents[2] / "../shared/data"


def known_of(triples: Tensor, nodes: int, relations: int) -> Known:
    keys = (triples[:, 1] * nodes + triples[:, 0]) * nodes + triples[:, 2]
    return Known(np.unique(keys.numpy()), nodes, relations)


def ranking(
    rows: Tensor, scorer: Any, tested: Tensor = TESTED, offsets: tuple[int, ...] = (0, NODES)
) -> AmongAll:
    kinds = [*range(len(offsets) - 1)]
    degrees = ends_of(tested[:, 0], tested[:, 2], len(rows))
    among = Nodes([f"t{k}" for k in kinds], [*offsets], kinds={"dst": kinds, "src": kinds}, degrees=degrees)
    pairs = Pairs(tested[:, 0], tested[:, 2], relation=tested[:, 1])
    known = known_of(TRIPLES, len(rows), RELATIONS)
    return AmongAll(
        scorer, pairs, rows[pairs.src], rows[pairs.dst], sides=("dst", "src"), known=known, among=among
    )


def looped(rows: Tensor, scorer: Any, tested: Tensor = TESTED) -> tuple[list[float], list[float]]:
    """Return filtered and raw places, one candidate after the other."""
    true = {tuple(triple) for triple in TRIPLES.tolist()}
    filtered, raw = [], []
    for side in ("dst", "src"):
        for head, relation, tail in tested.tolist():
            kind = torch.tensor([relation])

            def score(h: int, t: int, kind: Tensor = kind, side: str = side) -> float:
                found = scorer.double()(rows[h][None].double(), rows[t][None].double(), kind, side=side)
                return float(found.float())

            own, places = score(head, tail), [1.0, 1.0]
            for node in range(len(rows)):
                other = (head, node) if side == "dst" else (node, tail)
                if other == (head, tail):
                    continue
                found = score(*other)
                ahead = 1.0 if found > own else 0.5 if found == own else 0.0
                places[1] += ahead
                places[0] += 0.0 if (other[0], relation, other[1]) in true else ahead
            filtered.append(places[0])
            raw.append(places[1])
    return filtered, raw


def scored(name: str) -> Any:
    torch.manual_seed(0)
    turned = {} if name in ("dot", "cosine", "mlp") else {"reciprocal": True}
    return make_scorer({"name": name, **turned}, WIDTH, num_relations=RELATIONS)


@pytest.mark.parametrize("name", scorers.names())
@torch.no_grad()
def test_places_are_those_of_a_loop_over_candidates(name: str) -> None:
    scorer = scored(name)
    found = ranking(ROWS, scorer)
    found.add(torch.arange(NODES), ROWS)
    filtered, raw = looped(ROWS, scorer)
    assert found.ranks().places.tolist() == filtered
    assert found.ranks().raw.tolist() == raw
    assert filtered != raw


@torch.no_grad()
def test_candidates_come_in_any_pieces_and_order(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = scored("complex")
    whole = ranking(ROWS, scorer)
    whole.add(torch.arange(NODES), ROWS)
    monkeypatch.setattr(among_all, "BLOCK", {"cpu": 7, "cuda": 7})
    cut = ranking(ROWS, scorer)
    for some in (torch.tensor([1, 4, 9, 12]), torch.tensor([0, 2, 3]), torch.tensor([5, 6, 7, 8, 10, 11])):
        cut.add(some, ROWS[some])
    one, other = whole.ranks(), cut.ranks()
    for name in ("places", "raw", "others", "relation", "side"):
        assert torch.equal(getattr(one, name), getattr(other, name)), name
    torch.testing.assert_close(one.losses, other.losses, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def test_scores_that_are_all_alike_give_what_chance_gives() -> None:
    found = ranking(torch.ones(NODES, WIDTH), scored("distmult"))
    found.add(torch.arange(NODES), torch.ones(NODES, WIDTH))
    ranks = found.ranks()
    assert torch.equal(ranks.raw, torch.full((34,), 1 + (NODES - 1) / 2, dtype=torch.float64))
    assert torch.equal(ranks.places, 1 + ranks.others / 2)


@torch.no_grad()
def test_candidates_are_of_the_type_of_the_end_that_is_asked_for() -> None:
    rows = torch.arange(8.0)[:, None].expand(8, WIDTH).contiguous()  # the later, the better
    tested = torch.tensor([[0, 0, 5]])
    found = ranking(rows, make_scorer("dot", WIDTH, num_relations=RELATIONS), tested, (0, 3, 8))
    found.add(torch.arange(8), rows)
    assert found.ranks().raw.tolist() == [3.0, 3.0]  # 6 and 7 of 3 … 7; 1 and 2 of 0 … 2
    assert (found.ranks().others + 1).tolist() <= [5.0, 3.0]


@torch.no_grad()
def test_a_score_that_is_no_number_is_refused() -> None:
    rows = ROWS.clone()
    rows[3] = torch.nan
    found = ranking(ROWS, scored("distmult"))
    with pytest.raises(InputError, match="scores are NaN and have no place"):
        found.add(torch.arange(NODES), rows)


def test_no_pair_has_no_rank() -> None:
    found = ranking(ROWS, scored("distmult"), TESTED[:0])
    found.add(torch.arange(NODES), ROWS)
    assert len(found.ranks()) == 0


@pytest.mark.skipif(not (DATA / "wn18rr.npz").is_file(), reason="no ../shared/data/wn18rr.npz")
@pytest.mark.parametrize("every", [30, pytest.param(1, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
@torch.no_grad()
@pytest.mark.filterwarnings("ignore::weft.errors.DataNote")
def test_filtered_ranks_of_wordnet_are_those_of_a_plain_script(every: int) -> None:
    held = np.load(DATA / "wn18rr.npz", allow_pickle=False)
    graph = open_dataset(path=str(DATA / "wn18rr.npz"))
    task: Any = TaskChoice.of(
        {"name": "link_prediction", "hide": "none", "evaluate": {"name": "all", "filtered": True}}
    ).make(graph)
    task.hides(batches=False)
    targets = task.targets(task.prepared(graph), lambda value: value)
    assert {name: len(pairs) for name, pairs in task.pairs.items()} == {
        "train": 86_835,
        "val": 3_034,
        "test": 3_134,
    }, "unseen entities, and both directions of a relation, stay in"
    rows = torch.randn(graph.num_nodes, 8, generator=torch.Generator().manual_seed(1))
    scorer = make_scorer("complex", 8, num_relations=graph.num_relations)
    model = torch.nn.Module()
    model.task_head = scorer
    few = targets["test"]
    few.pairs = few.pairs.take(torch.arange(0, 3_134, every))
    ((ranks, _),) = few.pieces(model, rows, lambda h, ids: h[ids])
    assert isinstance(ranks, Ranks)
    expected = plain_ranks(held, rows.double().numpy(), scorer.weight.double().numpy(), few.pairs)
    assert ranks.places.tolist() == expected[0]
    assert ranks.raw.tolist() == expected[1]


def plain_ranks(held: Any, rows: Any, weight: Any, pairs: Pairs) -> tuple[list[float], list[float]]:
    """Return ranks from the file's own arrays: masks of all that is true, one query at a time."""
    triples = np.concatenate([held["train"], held["valid"], held["test"]])
    by_relation = [triples[triples[:, 1] == relation] for relation in range(len(weight))]
    entities, turns = rows[:, :4] + 1j * rows[:, 4:], weight[:, :4] + 1j * weight[:, 4:]
    filtered, raw = [], []
    assert pairs.relation is not None
    for side in ("tail", "head"):
        for head, relation, tail in zip(pairs.src.tolist(), pairs.relation.tolist(), pairs.dst.tolist()):
            of_relation = by_relation[relation]
            if side == "tail":
                scores = ((entities[head] * turns[relation]) @ entities.conj().T).real
                own, true = tail, of_relation[of_relation[:, 0] == head][:, 2]
            else:
                scores = (entities * turns[relation] @ entities[tail].conj()).real
                own, true = head, of_relation[of_relation[:, 2] == tail][:, 0]
            scores = scores.astype(np.float32)
            places = []
            for left_out in (true, [own]):
                count = np.ones(len(scores), bool)
                count[left_out] = False
                above, equal = scores[count] > scores[own], scores[count] == scores[own]
                places.append(1.0 + above.sum() + 0.5 * equal.sum())
            filtered.append(places[0])
            raw.append(places[1])
    return filtered, raw
