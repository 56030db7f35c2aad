"""Contributions by row, merged one after the other, and packed for the way between ranks."""

import torch

from weft.graph.reductions import ByRow, Contribution, Running, reduction


def test_contributions_to_a_row_keep_their_order() -> None:
    by_row = ByRow.of(torch.tensor([1, 0, 1, 3, 0]), 4)
    assert by_row.indptr.tolist() == [0, 2, 4, 4, 5]
    assert by_row.indices.tolist() == [1, 4, 0, 2, 3]
    indptr, rows, places = by_row.transposed
    assert indptr.tolist() == [0, 1, 2, 3, 4, 5]
    assert rows.tolist() == [1, 0, 1, 3, 0]
    assert places.tolist() == [2, 0, 3, 4, 1]


def test_what_travels_is_one_tensor_where_both_are_numbers_of_a_kind() -> None:
    value, mass = torch.rand(3, 2, 4), torch.rand(3, 2, dtype=torch.float64)
    softmax = Contribution(value, mass)
    (packed,) = softmax.packed()
    assert packed.shape == (3, 10)
    assert packed.dtype == torch.float32
    back = softmax.unpacked([packed])
    assert torch.equal(back.value, value)
    assert torch.equal(back.beside, mass.float())  # type: ignore[arg-type]
    largest = Contribution(torch.rand(3, 4), torch.ones(3, 4, dtype=torch.int32))
    assert [each.dtype for each in largest.packed()] == [torch.float32, torch.int32]
    assert len(Contribution(value).packed()) == 1


def test_the_first_part_is_taken_as_it_is_where_it_reaches_all_rows() -> None:
    first = torch.ones(3, 2)
    running = Running(reduction("sum"), 3)
    running.add(Contribution(first))
    assert running.whole.value is first
    running.add(Contribution(torch.full((2, 2), 5.0)), torch.tensor([2, 0]))
    assert running.whole.value[:, 0].tolist() == [6, 1, 6]


def test_what_gradients_need_is_let_go_and_taken_back() -> None:
    for name, kept in (("sum", 0), ("max", 2), ("softmax", 2)):
        kind = reduction(name)
        made = (torch.ones(2, 1), torch.ones(2, 1, 3)) if name == "softmax" else torch.ones(2, 3)
        running = Running(kind, 4)
        running.add(kind.reduced(ByRow.of(torch.tensor([0, 0]), 1), kind.contributions(made)), slice(2, 3))
        whole = running.whole
        state = running.let_go()
        assert len(state) == kept
        assert running.at(slice(0, 1)).value.numel() == 0
        running.take_back(state)
        assert not kept or running.whole.value is whole.value


def test_values_of_16_bits_travel_as_wide_as_what_stands_beside_them() -> None:
    for dtype in (torch.float16, torch.bfloat16):
        value, mass = torch.rand(3, 2).to(dtype), torch.tensor([[1 + 2**-20], [1000.25], [1e6 + 0.5]])
        softmax = Contribution(value, mass)
        (packed,) = softmax.packed()
        assert packed.dtype == torch.float32, "the logarithm of a mass has more digits than 16 bits hold"
        back = softmax.unpacked([packed])
        assert torch.equal(back.value, value.float())
        assert torch.equal(back.beside, mass)  # type: ignore[arg-type]
