"""Nodes are divided by chance, evenly, and are found again."""

import numpy as np
import pytest

from weft.errors import RecipeError
from weft.strategies.buckets.division import Division, Shuffle


@pytest.mark.parametrize("count", [1, 2, 3, 5, 64, 65, 1000])
def test_a_shuffle_is_a_permutation_with_an_inverse(count: int) -> None:
    shuffle = Shuffle(count, seed=7)
    places = shuffle(np.arange(count))
    assert sorted(places.tolist()) == list(range(count))
    assert shuffle.back(places).tolist() == list(range(count))
    if count == 1000:
        assert abs(np.corrcoef(places, np.arange(count))[0, 1]) < 0.1
        assert (places != Shuffle(count, seed=8)(np.arange(count))).mean() > 0.9


@pytest.mark.parametrize("asked", [1, 3, 4, {"a": 1, "b": 4}, {"a": 1, "b": 1}], ids=str)
def test_each_node_has_one_row_among_those_of_its_type(asked: int | dict[str, int]) -> None:
    division = Division(["a", "b"], [0, 10, 27], asked, seed=2)
    partitions = division.partitions
    ids = np.arange(27)
    held, row = division.places(ids)
    assert len({*zip(held.tolist(), row.tolist())}) == 27
    for partition in range(partitions):
        found = division.ids(partition)
        assert len(found) == division.size(partition) == (held == partition).sum()
        assert (row[found] == np.arange(len(found))).all()
        assert (held[found] == partition).all()
        starts = division.type_starts[partition]
        assert (division.kinds(found[starts[0] : starts[1]]) == 0).all()
        assert (division.kinds(found[starts[1] : starts[2]]) == 1).all()
    sizes = [division.size(partition) for partition in range(partitions)]
    if division.common is None:
        assert max(sizes) - min(sizes) <= 2
    else:
        assert partitions == 5
        assert (held[:10] == division.common).all()
        assert sizes == [4, 4, 4, 5, 10]


def test_too_many_partitions_are_refused() -> None:
    with pytest.raises(RecipeError, match=r"strategy\.partitions: 3 nodes of type 'b' are too few for 4"):
        Division(["a", "b"], [0, 10, 13], 4)
    Division(["a", "b"], [0, 10, 13], {"a": 4, "b": 1})


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"a": 4}, r"strategy\.partitions: nothing is said of nodes of type 'b'"),
        (
            {"a": 4, "b": 1, "c": 1},
            r"strategy\.partitions\.c: there is no such type of nodes; there are a, b",
        ),
    ],
)
def test_types_that_are_not_those_of_the_graph_are_refused(asked: dict[str, int], told: str) -> None:
    with pytest.raises(RecipeError, match=told):
        Division(["a", "b"], [0, 10, 27], asked)
