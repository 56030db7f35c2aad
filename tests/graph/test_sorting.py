"""Sorted keys, distinct keys and groups are those that a plain loop gives."""

import torch
from hypothesis import given
from hypothesis import strategies as st

from weft.graph.sorting import distinct, group, sort_keys


@given(st.lists(st.integers(0, 5), max_size=12))
def test_keys_are_sorted_distinct_and_grouped(labels: list[int]) -> None:
    keys = torch.tensor(labels, dtype=torch.int64)
    assert sort_keys(keys).tolist() == sorted(labels)
    assert distinct(keys).tolist() == sorted(set(labels))
    indptr, places = group(keys, 6)
    found = [places[indptr[label] : indptr[label + 1]].tolist() for label in range(6)]
    assert found == [[place for place, held in enumerate(labels) if held == label] for label in range(6)]


def test_labels_of_more_than_16_bits_are_grouped_too() -> None:
    labels = torch.tensor([70_000, 4_464, 70_000, 0])  # 70,000 is 4,464 in 16 bits
    indptr, places = group(labels, 70_001)
    assert places.tolist() == [3, 1, 0, 2]
    assert indptr[[0, 1, 4_465, 70_001]].tolist() == [0, 1, 2, 4]
