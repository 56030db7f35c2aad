"""Scores of chunks and their gradients against autograd of all pairs."""

import pytest
import torch

from weft.strategies.buckets.contrast import Workspace, compared, contrast
from weft.tasks.pair_loss import pair_loss
from weft.tasks.scores.compared import Nearness, Product


def test_chunks_are_the_sum_of_what_each_gives_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    queries, true = (torch.randn(3, 5, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    keys = torch.randn(3, 6, 4, generator=generator, dtype=torch.float64)

    def given(some: slice) -> list[torch.Tensor]:
        held = contrast(
            queries[some],
            true[some],
            [keys[some]],
            compare=Product(),
            loss=pair_loss("softmax"),
            mask=lambda scores: None,
            space=Workspace(),
        )
        return [each.clone() for each in held]

    together, alone = given(slice(0, 3)), [given(slice(place, place + 1)) for place in range(3)]
    torch.testing.assert_close(together[0], sum(each[0] for each in alone))
    for place in (1, 2, 3):
        torch.testing.assert_close(together[place], torch.cat([each[place] for each in alone]))


@pytest.mark.parametrize("compare", [Product(), Nearness(1), Nearness(2, 3.0)], ids=["product", "l1", "l2"])
def test_a_large_score_stays_finite(compare: Product | Nearness) -> None:
    queries = torch.full((1, 2, 4), 40.0)
    true, keys = -queries, torch.full((1, 3, 4), 40.0)
    found = contrast(
        queries,
        true,
        [keys],
        compare=compare,
        loss=pair_loss("softmax"),
        mask=lambda scores: None,
        space=Workspace(),
    )
    assert all(bool(each.isfinite().all()) for each in found)
    assert float(found[0]) > 100.0


@pytest.mark.parametrize("temperature", [1.0, 0.5])
def test_a_softmax_has_the_gradients_of_autograd_where_candidates_are_left_out(temperature: float) -> None:
    """Of one pair nothing is left to compare with: it has no loss."""
    generator = torch.Generator().manual_seed(5)
    queries, true = (torch.randn(2, 3, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    keys = torch.randn(2, 5, 4, generator=generator, dtype=torch.float64)

    def mask(scores: torch.Tensor) -> None:
        scores[0, 1, -5:] = -torch.inf
        scores[1, 2, -2:] = -torch.inf

    loss = pair_loss("softmax", temperature=temperature)
    expected = compared(queries, true, keys, compare=Product(), loss=loss, mask=mask)
    given = {"compare": Product(), "loss": loss, "temperature": temperature, "mask": mask}
    found = contrast(queries, true, [keys[:, :2], keys[:, 2:]], space=Workspace(), **given)
    torch.testing.assert_close(found, expected)
    assert not found[1][0, 1].any()


def test_memory_is_taken_once() -> None:
    space, like = Workspace(), torch.zeros(1)
    first = space.take("a", 3, 4, like=like)
    assert space.take("a", 2, 5, like=like).data_ptr() == first.data_ptr()
    assert space.take("a", 5, 5, like=like).data_ptr() != first.data_ptr()
    assert space.take("a", 2, like=like.double()).dtype == torch.float64
