"""Steps on a bucket against a loss that is written out, pair by pair and candidate by candidate."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, Candidates, EndPool
from weft.strategies.buckets.training import BucketSteps, Objective, PartitionRows, StepPairs
from weft.tasks.pair_loss import pair_loss
from weft.tasks.penalty import Penalty
from weft.tasks.scores import make_scorer

WIDTH, SIZES, RELATIONS = 6, {"src": 8, "dst": 9}, 3


def bucket(count: int = 23) -> BucketEdges:
    generator = torch.Generator().manual_seed(4)
    sizes = (SIZES["src"], SIZES["dst"], RELATIONS)
    src, dst, kind = (torch.randint(0, most, (count,), generator=generator) for most in sizes)
    return BucketEdges(src, dst, kind, torch.zeros_like(src), [(0, 0)])


def tables(same: bool) -> dict[Any, PartitionRows]:
    generator = torch.Generator().manual_seed(5)
    made = {
        end: PartitionRows(
            torch.randn(9 if same else size, WIDTH, generator=generator, dtype=torch.float64),
            torch.zeros(9 if same else size, dtype=torch.float64),
        )
        for end, size in SIZES.items()
    }
    return {"src": made["src"], "dst": made["src"]} if same else made


def batches_of(edges: BucketEdges, how: Candidates, batch: int, chunk: int) -> BucketBatches:
    ends: Any = {end: EndPool(np.array([0, size])) for end, size in SIZES.items()}
    return BucketBatches(edges, ends, how, batch=batch, chunk=chunk, seed=3, epoch=1, bucket=2)


def pairs_of(
    steps: BucketSteps, edges: BucketEdges, batches: BucketBatches, rows: dict[Any, PartitionRows]
) -> list[tuple[Any, StepPairs]]:
    """Return the batches of a bucket, each with the pairs of its step."""
    held = edges.shuffled(batches.order(steps.device), steps.device)
    true = steps.true_ends(held, rows)
    found = []
    for batch in batches:
        here = batch.edges
        ids: Any = {"src": held.src[here], "dst": held.dst[here]}
        mine = {side: each.take(here) for side, each in true.items()}
        found.append(
            (batch, StepPairs(ids, held.relation[here], batches.drawn(batch), mine, batches.shifts(batch)))
        )
    return found


def written_out(
    goal: Objective,
    edges: BucketEdges,
    batches: BucketBatches,
    batch: Any,
    rows: dict[Any, Tensor],
) -> Tensor:
    """Return the sum of losses of a batch: for each pair the score of each candidate, one by one."""
    true = {*zip(edges.src.tolist(), edges.relation.tolist(), edges.dst.tolist())}
    places = batches.order(torch.device("cpu"))[batch.edges].reshape(batch.chunks, -1)
    drawn = batches.drawn(batch)
    total = torch.zeros((), dtype=torch.float64)
    for chunk, inside in enumerate(places):
        for edge in inside.tolist():
            src, kind, dst = int(edges.src[edge]), edges.relation[edge : edge + 1], int(edges.dst[edge])
            for side in goal.candidates.sides:
                own = edges.dst[inside] if side == "dst" else edges.src[inside]
                nodes = (own.tolist() if goal.candidates.others else []) + drawn[side][chunk].tolist()
                pairs = [(src, node) if side == "dst" else (node, dst) for node in nodes]
                left = [
                    (a, b) == (src, dst) or (goal.candidates.exclude == "known" and (a, int(kind), b) in true)
                    for a, b in pairs
                ]
                scores = [
                    goal.scorer(rows["src"][[a]], rows["dst"][[b]], kind, side=side)
                    for (a, b), out in zip([(src, dst), *pairs], [False, *left])
                    if not out
                ]
                if goal.candidates.weighted:  # as if each candidate were there as often as it was not drawn
                    scores[0] = scores[0] - math.log(SIZES[side] / len(nodes))
                total = total + goal.loss.each(torch.stack(scores, 1), torch.zeros(1)).sum()
                if goal.penalty is not None:
                    ends = rows["src"][[src]], rows["dst"][[dst]]
                    total = total + goal.penalty.each(goal.scorer, *ends, kind, side=side).sum()
    return total


SCORES: list[Any] = ["dot", "cosine", "distmult", "complex", "bilinear", "rotate", "affine"]
SCORES += [{"name": "transe", "norm": "l1"}, {"name": "transe", "norm": "l2"}]
SCORES += [{"name": "complex", "reciprocal": True}]


WAYS = {
    "both": (Candidates(count=4), False),
    "drawn": (Candidates(count=5, inbatch=False, exclude="own"), True),
    "inbatch": (Candidates(count=0, side="src"), True),
    "all": (Candidates(count="all"), False),
    "weighted": (Candidates(count=4, inbatch=False, weighted=True), False),
}
LOSSES = ["cross_entropy", "margin", "bpr", "self_adversarial", "negative_sampling"]
CASES = [(score, "infonce", "both") for score in SCORES]
CASES += [(score, loss, "drawn") for score in ("distmult", SCORES[-2]) for loss in LOSSES]
CASES += [
    ("complex", "softmax", "drawn"),
    ("complex", "softmax", "inbatch"),
    ("complex", "softmax", "all"),
    ("complex", "softmax", "weighted"),
    (SCORES[-2], "softmax", "weighted"),
    (SCORES[-2], "softmax", "inbatch"),
]
EVERY = [
    (score, loss, way)
    for score in SCORES
    for loss in ("infonce", *LOSSES)
    for way in WAYS
    if way != "weighted" or loss == "infonce"
]


@pytest.mark.slow
@pytest.mark.parametrize(("score", "loss", "way"), EVERY, ids=str)
def test_every_score_loss_and_way_of_comparing_has_the_gradients_written_out(
    score: Any, loss: str, way: str
) -> None:
    test_gradients_are_those_of_the_loss_written_out(score, loss, way)


@pytest.mark.parametrize(("score", "loss", "way"), CASES, ids=str)
def test_gradients_are_those_of_the_loss_written_out(score: Any, loss: str, way: str) -> None:
    how, same = WAYS[way]
    torch.manual_seed(1)
    scorer = make_scorer(score, WIDTH, num_relations=RELATIONS).double()
    goal = Objective(scorer, pair_loss(loss), how, penalty=Penalty("n3", 0.1) if loss == "infonce" else None)
    edges, rows = bucket(14), tables(same)
    batches = batches_of(edges, how, 12, 4)
    steps = BucketSteps(goal, device=torch.device("cpu"))
    seen = 0
    for batch, pairs in pairs_of(steps, edges, batches, rows):
        scorer.zero_grad()
        found, changes = steps.gradients(pairs, rows)
        weights = [value.grad for value in scorer.parameters()]
        tables_ = {end: rows[end].values.clone().requires_grad_() for end in rows}
        if same:
            tables_["dst"] = tables_["src"]
        scorer.zero_grad()
        expected = written_out(goal, edges, batches, batch, tables_)
        expected.backward()
        torch.testing.assert_close(found, expected.detach())
        sums = {end: torch.zeros_like(rows[end].values) for end in rows}
        for end, given in changes.items():
            for ids, grads in given:
                sums["src" if same else end].index_add_(0, ids, grads)
        for end in ("src",) if same else ("src", "dst"):
            torch.testing.assert_close(sums[end], tables_[end].grad)
        for value, grad in zip(scorer.parameters(), weights):
            assert (grad is None) == (value.grad is None)
            if grad is not None:
                torch.testing.assert_close(grad, value.grad)
        seen += batch.edges.stop - batch.edges.start
    assert seen == len(edges)


def test_a_temperature_divides_the_scores_of_a_softmax() -> None:
    how = Candidates(count=3)
    edges, rows = bucket(), tables(False)
    scorer = make_scorer("dot", WIDTH).double()
    goal = Objective(scorer, pair_loss("infonce", temperature=0.3), how, temperature=0.3)
    batches = batches_of(edges, how, 12, 6)
    steps = BucketSteps(goal, device=torch.device("cpu"))
    for batch, pairs in pairs_of(steps, edges, batches, rows):
        found, changes = steps.gradients(pairs, rows)
        tables_ = {end: rows[end].values.clone().requires_grad_() for end in rows}
        expected = written_out(goal, edges, batches, batch, tables_)
        expected.backward()
        torch.testing.assert_close(found, expected.detach())
        sums = torch.zeros_like(rows["src"].values)
        for ids, grads in changes["src"]:
            sums.index_add_(0, ids, grads)
        torch.testing.assert_close(sums, tables_["src"].grad)


def test_training_lowers_the_loss_and_gives_the_same_bits_twice() -> None:
    how = Candidates(count=6)
    results = []
    for _ in range(2):
        torch.manual_seed(2)
        scorer = make_scorer("distmult", WIDTH, num_relations=RELATIONS).double()
        optimizer = torch.optim.Adagrad(scorer.parameters(), lr=0.1)
        edges, rows = bucket(), tables(False)
        steps = BucketSteps(Objective(scorer, pair_loss("infonce"), how), device=torch.device("cpu"))
        losses = [
            float(steps.train(edges, batches_of(edges, how, 8, 4), rows, optimizer=optimizer))
            for _ in range(20)
        ]
        assert losses[-1] < 0.7 * losses[0]
        results.append([rows["src"].values, rows["dst"].total, scorer.weight.detach()])
    assert all(torch.equal(a, b) for a, b in zip(*results))
