"""Every scorer gives one score, whichever way it is asked; its formula is that of a loop over pairs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import weft
from weft.errors import InputError
from weft.tasks.partners import joined, partner_chunks
from weft.tasks.scores import Scorer, check_scorer, make_scorer, scorers

WIDTH, RELATIONS = 6, 3
GENERATOR = torch.Generator().manual_seed(0)
SRC = torch.randn(5, WIDTH, generator=GENERATOR, dtype=torch.float64)
ALL = torch.randn(7, WIDTH, generator=GENERATOR, dtype=torch.float64)
DATA = torch.randn(5, 2, generator=GENERATOR, dtype=torch.float64)
RELATION = torch.tensor([2, 0, 2, 1, 0])
NAMES = scorers.names()


def made(name: str, *, relations: int = RELATIONS, **options: Any) -> Scorer:
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


def complex_numbers(row: Tensor) -> list[Tensor]:
    half = len(row) // 2
    return [torch.complex(row[i], row[half + i]) for i in range(half)]


def plain_complex(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    rows = map(complex_numbers, (src, scorer.weight[relation], dst))
    return torch.stack([(a * r * b.conj()).real for a, r, b in zip(*rows)]).sum()


def plain_rotate(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    turns = [torch.complex(angle.cos(), angle.sin()) for angle in scorer.angle[relation]]
    apart = [(a * r - b).abs() for a, r, b in zip(complex_numbers(src), turns, complex_numbers(dst))]
    return 2.5 - torch.stack(apart).sum()


def plain_rotate_l2(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    turns = [torch.complex(angle.cos(), angle.sin()) for angle in scorer.angle[relation]]
    apart = [(a * r - b).abs() for a, r, b in zip(complex_numbers(src), turns, complex_numbers(dst))]
    return -torch.stack(apart).square().sum().sqrt()


def plain_transe(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    return -torch.stack([(a + r - b) ** 2 for a, r, b in zip(src, scorer.weight[relation], dst)]).sum().sqrt()


def plain_transe_l1(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    return 4.0 - torch.stack([(a + r - b).abs() for a, r, b in zip(src, scorer.weight[relation], dst)]).sum()


def plain_affine(scorer: Any, src: Tensor, dst: Tensor, relation: int) -> Tensor:
    weight, bias = scorer.weight[relation], scorer.bias[relation]
    turned = [sum(src[i] * weight[i, j] for i in range(WIDTH)) + bias[j] for j in range(WIDTH)]
    return torch.stack([a * b for a, b in zip(turned, dst)]).sum()


Plain = Callable[[Any, Tensor, Tensor, int], Tensor]
CASES: dict[str, tuple[dict[str, Any], Plain]] = {
    "dot": ({"name": "dot"}, plain_dot),
    "cosine": ({"name": "cosine"}, plain_cosine),
    "bilinear": ({"name": "bilinear"}, plain_bilinear),
    "rescal": ({"name": "rescal"}, plain_bilinear),
    "distmult": ({"name": "distmult"}, plain_distmult),
    "complex": ({"name": "complex"}, plain_complex),
    "rotate": ({"name": "rotate", "offset": 2.5}, plain_rotate),
    "rotate l2": ({"name": "rotate", "norm": "l2"}, plain_rotate_l2),
    "transe": ({"name": "transe"}, plain_transe),
    "transe l1": ({"name": "transe", "norm": "l1", "offset": 4.0}, plain_transe_l1),
    "affine": ({"name": "affine"}, plain_affine),
    "mlp": ({"name": "mlp"}, plain_mlp),
}
TURNED = [case for case, (options, _) in CASES.items() if options["name"] not in ("dot", "cosine", "mlp")]


def test_every_scorer_is_held_to_a_loop() -> None:
    assert sorted({options["name"] for options, _ in CASES.values()}) == NAMES


def grid(score: Any, first: Tensor, second: Tensor, kinds: list[int]) -> Tensor:
    rows = [[score(a, b, kind) for b in second] for a, kind in zip(first, kinds)]
    return torch.stack([torch.stack(row) for row in rows])


def gradients(scorer: Scorer, scores: Tensor, *rows: Tensor) -> list[Tensor]:
    by_place = torch.arange(1.0, 1 + scores.numel(), dtype=torch.float64).view_as(scores)
    return list(torch.autograd.grad((scores * by_place).sum(), [*rows, *scorer.parameters()]))


@pytest.mark.parametrize("relations", [1, RELATIONS])
@pytest.mark.parametrize("case", CASES)
def test_scores_and_gradients_are_those_of_a_loop_whichever_way_they_are_asked(
    case: str, relations: int
) -> None:
    options, plain = CASES[case]
    scorer = made(relations=relations, **options)
    relation = RELATION if relations > 1 else None
    src, all = SRC.clone().requires_grad_(), ALL.clone().requires_grad_()
    kinds = [0] * 5 if relation is None else relation.tolist()

    def asked(first: Tensor, second: Tensor) -> Tensor:
        return grid(lambda a, b, kind: plain(scorer, a, b, kind), first, second, kinds)

    def turned(first: Tensor, second: Tensor) -> Tensor:
        return grid(lambda a, b, kind: plain(scorer, b, a, kind), first, second, kinds)

    many = all.expand(5, 7, WIDTH)
    for scores, expected in (
        (scorer.against(src, all, relation), asked(src, all)),
        (scorer(src, many, relation), asked(src, all)),
        (scorer.against(src, all, relation, side="src"), turned(src, all)),
        (scorer(many, src, relation), turned(src, all)),
        (scorer(src, all[:5], relation), asked(src, all[:5]).diagonal()),
        (scorer(src, all[:5], relation, side="src"), asked(src, all[:5]).diagonal()),
    ):
        torch.testing.assert_close(scores, expected)
        found, wanted = gradients(scorer, scores, src, all), gradients(scorer, expected, src, all)
        for one, other in zip(found, wanted):
            torch.testing.assert_close(one, other)


@pytest.mark.parametrize("relations", [1, RELATIONS])
@pytest.mark.parametrize("case", TURNED)
def test_a_reciprocal_relation_answers_what_its_sources_are(case: str, relations: int) -> None:
    options, plain = CASES[case]
    scorer = made(relations=relations, reciprocal=True, **options)
    assert all(len(weight) == 2 * relations for weight in scorer.parameters())
    relation = RELATION if relations > 1 else None
    kinds = [0] * 5 if relation is None else relation.tolist()
    back = [kind + relations for kind in kinds]
    src, all_ = SRC.clone().requires_grad_(), ALL.clone().requires_grad_()
    many = all_.expand(5, 7, WIDTH)

    def asked(second: Tensor, kinds: list[int]) -> Tensor:
        return grid(lambda a, b, kind: plain(scorer, a, b, kind), src, second, kinds)

    for scores, expected in (
        (scorer.against(src, all_, relation), asked(all_, kinds)),
        (scorer(src, many, relation), asked(all_, kinds)),
        # What is asked for is a source: the given target is the first of its reciprocal relation.
        (scorer.against(src, all_, relation, side="src"), asked(all_, back)),
        (scorer(many, src, relation), asked(all_, back)),
        (scorer(src, all_[:5], relation), asked(all_[:5], kinds).diagonal()),
        (scorer(all_[:5], src, relation, side="src"), asked(all_[:5], back).diagonal()),
    ):
        torch.testing.assert_close(scores, expected)
        found, wanted = gradients(scorer, scores, src, all_), gradients(scorer, expected, src, all_)
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
        (lambda: check_scorer({"name": "cosine", "reciprocal": True}), "reciprocal.*no options here"),
        (lambda: check_scorer({"name": "transe", "norm": "l3"}), "task.score.norm.*'l1', 'l2'"),
        (lambda: make_scorer("complex", 5), "complex numbers, so task.width must be even, got 5"),
        (lambda: make_scorer("rotate", 5), "complex numbers, so task.width must be even, got 5"),
        (lambda: made("mlp").against(SRC, ALL), "expected the relation of each pair, one of 3; got none"),
    ],
)
def test_what_cannot_be_is_one_line(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        make()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_partners_are_found_by_any_scorer(name: str) -> None:
    scorer = made(name)
    best = joined(partner_chunks(ALL, [4, 0], scorer, 2, relation=torch.tensor([1, 2]), itself=True))
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
