"""Every scorer gives one score, whichever way it is asked; its formula is that of a loop over pairs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import weft
from weft.errors import InputError
from weft.tasks.partners import top_partners
from weft.tasks.scorers import EdgeHead, Scorer, check_scorer, make_scorer, scorers

WIDTH, RELATIONS = 6, 3
GENERATOR = torch.Generator().manual_seed(0)
SRC = torch.randn(5, WIDTH, generator=GENERATOR, dtype=torch.float64)
ALL = torch.randn(7, WIDTH, generator=GENERATOR, dtype=torch.float64)
DATA = torch.randn(5, 2, generator=GENERATOR, dtype=torch.float64)
RELATION = torch.tensor([2, 0, 2, 1, 0])
NAMES = scorers.names()


def made(name: str, relations: int = RELATIONS, **options: Any) -> Scorer:
    torch.manual_seed(1)
    scorer = make_scorer({"name": name, **options}, WIDTH, num_relations=relations).double()
    for value in scorer.parameters():  # rows that begin as zeros, too
        torch.nn.init.normal_(value)
    return scorer


def plain_dot(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    return torch.stack([a * b for a, b in zip(src, dst)]).sum()


def plain_cosine(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    return plain_dot(scorer, src, dst, relation) / (src.square().sum() * dst.square().sum()).sqrt()


def plain_bilinear(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    weight = scorer.weight[relation]
    return torch.stack([src[i] * weight[i, j] * dst[j] for i in range(WIDTH) for j in range(WIDTH)]).sum()


def plain_distmult(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    return torch.stack([a * r * b for a, r, b in zip(src, scorer.weight[relation], dst)]).sum()


def plain_mlp(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    first, last = scorer.ends.linear, scorer.last
    row = 0.0 if scorer.ends.relation is None else scorer.ends.relation[relation]
    units = torch.relu(first.weight @ torch.cat([src, dst]) + first.bias + row)
    return (last.weight @ units + last.bias)[0]


PLAIN: dict[str, Callable[[Any, Tensor, Tensor, int], Tensor]] = {
    "dot": plain_dot,
    "cosine": plain_cosine,
    "bilinear": plain_bilinear,
    "distmult": plain_distmult,
    "mlp": plain_mlp,
}


def test_every_scorer_is_held_to_a_loop() -> None:
    assert sorted(PLAIN) == NAMES


def gradients(scorer: Scorer, scores: Tensor, *rows: Tensor) -> list[Tensor]:
    by_place = torch.arange(1.0, 1 + scores.numel(), dtype=torch.float64).view_as(scores)
    return list(torch.autograd.grad((scores * by_place).sum(), [*rows, *scorer.parameters()]))


@pytest.mark.parametrize("relations", [1, RELATIONS])
@pytest.mark.parametrize("name", NAMES)
def test_scores_and_gradients_are_those_of_a_loop_whichever_way_they_are_asked(
    name: str, relations: int
) -> None:
    scorer = made(name, relations)
    relation = RELATION if relations > 1 else None
    src, all = SRC.clone().requires_grad_(), ALL.clone().requires_grad_()
    kinds = [0] * 5 if relation is None else relation.tolist()

    def asked(first: Tensor, second: Tensor) -> Tensor:
        rows = [[PLAIN[name](scorer, a, b, kind) for b in second] for a, kind in zip(first, kinds)]
        return torch.stack([torch.stack(row) for row in rows])

    def turned(first: Tensor, second: Tensor) -> Tensor:
        rows = [[PLAIN[name](scorer, b, a, kind) for b in second] for a, kind in zip(first, kinds)]
        return torch.stack([torch.stack(row) for row in rows])

    many = all.expand(5, 7, WIDTH)
    for scores, expected in (
        (scorer.against(src, all, relation), asked(src, all)),
        (scorer(src, many, relation), asked(src, all)),
        (scorer.against(src, all, relation, side="src"), turned(src, all)),
        (scorer(many, src, relation), turned(src, all)),
        (scorer(src, all[:5], relation), asked(src, all[:5]).diagonal()),
    ):
        torch.testing.assert_close(scores, expected)
        found, wanted = gradients(scorer, scores, src, all), gradients(scorer, expected, src, all)
        for one, other in zip(found, wanted):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("name", NAMES)
def test_no_pairs_and_no_candidates_have_no_scores(name: str) -> None:
    scorer = made(name)
    assert scorer(SRC[:0], ALL[:0], RELATION[:0]).shape == (0,)
    assert scorer(SRC[:0], ALL.expand(0, 7, WIDTH), RELATION[:0]).shape == (0, 7)
    assert scorer.against(SRC[:0], ALL, RELATION[:0]).shape == (0, 7)
    assert scorer.against(SRC, ALL[:0], RELATION).shape == (5, 0)


@pytest.mark.parametrize("name", NAMES)
def test_first_weights_come_from_torchs_generator(name: str) -> None:
    def drawn(seed: int) -> list[Tensor]:
        torch.manual_seed(seed)
        return [value.detach() for value in make_scorer(name, 64, num_relations=2).parameters()]

    first, again, other = drawn(3), drawn(3), drawn(4)
    assert all(map(torch.equal, first, again))
    assert bool(first) == any(not torch.equal(a, b) for a, b in zip(first, other))
    for value in first:
        assert bool(value.isfinite().all())


def test_a_row_of_zeros_has_no_direction_and_a_gradient_of_the_size_of_others() -> None:
    src = torch.zeros(1, WIDTH, dtype=torch.float64, requires_grad=True)
    score = made("cosine")(src, ALL[:1])
    assert score.tolist() == [0.0]
    (gradient,) = torch.autograd.grad(score.sum(), src)
    torch.testing.assert_close(gradient, F.normalize(ALL[:1], dim=-1))


def test_an_mlp_of_many_candidates_holds_a_few_rows_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = made("mlp")
    expected = scorer.against(SRC, ALL, RELATION)
    monkeypatch.setattr("weft.tasks.scorers._AT_ONCE", 2 * ALL.numel())
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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: make_scorer("distmutl", WIDTH), "no scorer 'distmutl'; did you mean 'distmult'"),
        (lambda: check_scorer({"hidden": 3}), "task.score: expected a name or a table with one"),
        (lambda: check_scorer({"name": "dot", "hidden": 3}), "task.score.*hidden.*no options here"),
        (lambda: check_scorer({"name": "mlp", "hidden": 0}), "task.score.hidden.*>= 1"),
        (lambda: check_scorer({"name": "mlp", "width": 3}), "task.score.*width"),
        (lambda: made("distmult")(SRC, ALL[:5]), "expected the relation of each pair, one of 3; got none"),
        (lambda: made("bilinear")(SRC, ALL[:5]), "expected the relation of each pair, one of 3; got none"),
        (lambda: made("mlp").against(SRC, ALL), "expected the relation of each pair, one of 3; got none"),
        (lambda: EdgeHead(WIDTH, 2)(SRC.float(), SRC.float(), data=DATA), "expected 0 numbers .* got 2"),
        (lambda: EdgeHead(WIDTH, 0), "columns must be a positive integer"),
    ],
)
def test_what_cannot_be_is_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_partners_are_found_by_any_scorer(name: str) -> None:
    scorer = made(name)
    best = top_partners(ALL, [4, 0], scorer, 2, relation=torch.tensor([1, 2]), itself=True)
    scores = scorer.against(ALL[[4, 0]], ALL, torch.tensor([1, 2]))
    assert torch.equal(best.ids, scores.topk(2).indices)


@pytest.mark.parametrize("task", ["link_prediction", "edge_regression"])
def test_the_same_run_of_pairs_has_the_same_bits_again(task: str) -> None:
    graph = weft.datasets.open_dataset(name="community", nodes=400, seed=1)
    rated = weft.Graph.from_edges(
        graph.edge_index, x=graph.x, edge_data={"label": torch.arange(graph.num_edges) % 7 / 7}
    )
    runs = [
        weft.train(rated, "gcn", epochs=2, hidden=64, task={"name": task}, strategy={"name": "sampled"})
        for _ in range(4)
    ]
    first, *others = [[*run.model.parameters()] for run in runs]
    for again in others:
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
