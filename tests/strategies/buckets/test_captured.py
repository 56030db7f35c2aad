"""Steps of fixed shapes give what steps on batches give; on a GPU they are replayed, the same bits twice."""

from typing import Any

import numpy as np
import pytest
import torch

from weft.strategies.buckets.captured import CapturedSteps
from weft.strategies.buckets.chunks import BucketBatches, BucketEdges, Candidates, EndPool, shuffled
from weft.strategies.buckets.training import BucketSteps, Objective, PartitionRows
from weft.tasks.pair_loss import pair_loss
from weft.tasks.penalty import Penalty
from weft.tasks.scores import make_scorer

WIDTH, SIZES, RELATIONS = 6, {"src": 12, "dst": 15}, 3
CPU = torch.device("cpu")


def edges_of(count: int, seed: int = 4) -> BucketEdges:
    """Return edges of two groups: their targets are rows 0 … 8, or 9 … 14."""
    generator = torch.Generator().manual_seed(seed)
    src, kind = (torch.randint(0, most, (count,), generator=generator) for most in (12, RELATIONS))
    group = (kind == 2).long()
    dst = torch.randint(0, 6, (count,), generator=generator) + 9 * group
    return BucketEdges(src, dst, kind, group, [(0, 0), (0, 1)])


def trained(
    goal: dict[str, Any],
    how: Candidates,
    *,
    same: bool = False,
    filled: bool,
    device: torch.device = CPU,
    dtype: torch.dtype = torch.float64,
    epochs: int = 3,
) -> list[torch.Tensor]:
    """Train on two buckets by turns, and return the losses, rows, sums and weights."""
    torch.manual_seed(1)
    score = goal.get("score", "complex")
    scorer = make_scorer(score, WIDTH, num_relations=RELATIONS).to(device, dtype)
    optimizer = torch.optim.Adagrad(scorer.parameters(), lr=0.1)
    steps = BucketSteps(
        Objective(scorer, pair_loss(goal.get("loss", "softmax")), how, penalty=goal.get("penalty")),
        device=device,
    )
    trainer = CapturedSteps(steps, filled=filled)
    made = {
        end: PartitionRows(torch.randn(size, WIDTH, dtype=dtype), torch.zeros(size, dtype=dtype))
        for end, size in (SIZES | {"src": 15} if same else SIZES).items()
    }
    rows: Any = {end: each.to(device) for end, each in made.items()}
    rows["dst"] = rows["src"] if same else rows["dst"]
    starts = {"src": np.array([0, 12]), "dst": np.array([0, 9, 15])}
    weight = np.arange(1.0, 16.0).cumsum() if how.alpha else None
    ends: Any = {end: EndPool(starts[end], weight) for end in SIZES}
    losses, taken = [], 0
    for epoch in range(epochs):
        for bucket, count in enumerate((23, 9, 31)):
            held = edges_of(count, seed=bucket)
            when = {"seed": 3, "epoch": epoch, "bucket": bucket}
            batches = BucketBatches(held, ends, how, batch=12, chunk=4, **when)
            taken += len([*batches])
            losses.append(trainer.train(held, batches, rows, optimizer=optimizer).cpu())
    assert {float(state["step"]) for state in optimizer.state.values()} == {float(taken)}
    found = [each for end in rows for each in (rows[end].values, rows[end].total)]
    return [torch.stack(losses), *found, *(each.detach() for each in scorer.parameters())]


WAYS: dict[str, tuple[dict[str, Any], Candidates, bool]] = {
    "drawn": ({"penalty": Penalty("n3", 0.1)}, Candidates(count=5, inbatch=False), False),
    "inbatch": ({"score": "distmult"}, Candidates(count=3, exclude="own"), True),
    "weighted": ({"loss": "logistic"}, Candidates(count=5, alpha=0.5), False),
    "distance": ({"score": "transe", "loss": "self_adversarial"}, Candidates(count=4, side="dst"), False),
    "all": ({}, Candidates(count="all"), False),
    "standing for all": ({}, Candidates(count=5, inbatch=False, weighted=True), False),
}


@pytest.mark.parametrize("way", WAYS)
def test_steps_of_fixed_shapes_give_what_steps_on_batches_give(way: str) -> None:
    goal, how, same = WAYS[way]
    plain, filled = (trained(goal, how, same=same, filled=each) for each in (False, True))
    for one, other in zip(plain, filled):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("way", WAYS)
def test_a_gpu_replays_steps_with_the_numbers_of_a_cpu_and_the_same_bits_twice(way: str) -> None:
    goal, how, same = WAYS[way]
    device = torch.device("cuda", 0)
    given: dict[str, Any] = {"same": same, "filled": False, "dtype": torch.float32}
    there, again = (trained(goal, how, device=device, **given) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(there, again))
    for one, other in zip(trained(goal, how, **given), there):
        torch.testing.assert_close(one, other.cpu(), rtol=2e-3, atol=2e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_edges_are_shuffled_alike_on_a_gpu() -> None:
    assert torch.equal(shuffled(5, 1000, CPU), shuffled(5, 1000, torch.device("cuda")).cpu())
