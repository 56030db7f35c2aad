"""The board in a checkpoint: rows by call, source and epoch, versions of the weights, what is not taken."""

from collections.abc import Mapping, Sequence
from typing import cast

import torch
from torch import Tensor

from weft.strategies.asynchronous.board import Board, Learned, RowsKey, What


def kept(board: Board, following: int, names: Sequence[str]) -> dict[str, Tensor]:
    """Return what stands on a board between two epochs; `following` is the next one to begin."""
    held = {"next": torch.tensor(following)}
    for key, epochs in board.rows.items():
        for epoch, rows in epochs.items():
            held[f"rows.{key.what}.{key.slot}.{key.source}.{epoch}"] = rows
    for version, weights in board.versions.items():
        for name in names:
            held[f"version.{version}.{name}"] = weights[name].detach()
    for epoch, intervals in board.learned.items():
        for number, one in intervals.items():
            held[f"learned.{epoch}.{number}.loss"] = one.loss
            for name, value in zip(names, one.values):
                if value is not None:
                    held[f"learned.{epoch}.{number}.of.{name}"] = value
    return held


def put_back(board: Board, state: Mapping[str, Tensor], names: Sequence[str]) -> None:
    """Put on a board what `kept` gave, in whatever order it comes: weights stand in that of `names`."""
    losses: list[tuple[int, int]] = []
    if "next" in state:  # all before were begun, even where nothing is left to do for them here
        board.entered = int(state["next"]) - 1
    for label, value in state.items():
        kind, _, rest = label.partition(".")
        if kind == "rows":
            what, slot, source, epoch = rest.split(".")
            board.rows.setdefault(RowsKey(cast(What, what), int(slot), int(source)), {})[int(epoch)] = value
        elif kind == "version":
            version, _, name = rest.partition(".")
            held = board.versions.setdefault(int(version), dict.fromkeys(names, value))
            held[name] = value.clone().requires_grad_()
        elif kind == "learned" and rest.endswith(".loss"):
            epoch, interval, _ = rest.split(".")
            losses.append((int(epoch), int(interval)))
    for at, number in losses:
        start = f"learned.{at}.{number}."
        values = [state.get(f"{start}of.{name}") for name in names]
        board.learned.setdefault(at, {})[number] = Learned(state[f"{start}loss"], values)
