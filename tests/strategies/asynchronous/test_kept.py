"""A board that was kept and put back stands as it stood."""

import torch

from weft.strategies.asynchronous.board import Board, Learned, RowsKey
from weft.strategies.asynchronous.choices import Exactly
from weft.strategies.asynchronous.kept import kept, put_back
from weft.strategies.asynchronous.order import OrderLog


def board_of() -> Board:
    return Board(2, Exactly(1), OrderLog(None, {}, since=0))


def test_all_of_a_board_comes_back() -> None:
    board, names = board_of(), ["layers.0.weight", "bias"]
    for version in (4, 5):
        board.versions[version] = {
            name: torch.full((2,), float(version), requires_grad=True) for name in names
        }
    board.rows = {
        RowsKey("features", 0, -1): {4: torch.ones(3), 5: torch.zeros(3)},
        RowsKey("gradients", 1, 1): {5: torch.full((2,), 7.0)},
    }
    board.learned = {5: {0: Learned(torch.tensor(0.5), [torch.ones(2), None])}}
    again = board_of()
    # A file of tensors gives them in any order.
    put_back(again, dict(reversed(kept(board, 6, names).items())), names)
    assert again.hold() == 5, "what was begun is not begun again"
    assert [[*weights] for weights in again.versions.values()] == [names, names]
    assert again.rows.keys() == board.rows.keys()
    for key, epochs in board.rows.items():
        assert epochs.keys() == again.rows[key].keys()
        assert all(torch.equal(rows, again.rows[key][epoch]) for epoch, rows in epochs.items())
    assert again.versions.keys() == board.versions.keys()
    assert all(value.requires_grad and value.is_leaf for value in again.versions[4].values())
    assert torch.equal(again.versions[5]["bias"], torch.full((2,), 5.0))
    held = again.learned[5][0]
    assert float(held.loss) == 0.5
    assert held.values[1] is None
    assert torch.equal(held.values[0], torch.ones(2))  # type: ignore[arg-type]
