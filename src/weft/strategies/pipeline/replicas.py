"""Gradients of the replicas of a stage become one: each sums a share of all, and hands it to the others.

A ring's volume, 2 (r - 1) / r of the gradients a worker, with sums in the order of replicas, whoever came
first: the bits of one process that adds them up. It goes by messages between two, for torch can make a group
of some ranks only where all of them have made as many groups before, and stages differ.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.ledger import Label

_SUMS = Label("gradient", direction="backward")


def summed(flat: Tensor, group: Group, members: Sequence[int]) -> Tensor:
    """Return the sum over members of a group, to which this one belongs; called by all of them."""
    own, others = list(members).index(group.rank), [each for each in members if each != group.rank]
    shares = list(flat.tensor_split(len(members)))
    pieces = _swapped([(each, shares[list(members).index(each)]) for each in others], shares[own], group)
    pieces[group.rank] = shares[own]
    total = pieces[members[0]].clone()
    for member in members[1:]:
        total += pieces[member]
    found = _told([(each, shares[list(members).index(each)]) for each in others], total, group)
    found[group.rank] = total
    return torch.cat([found[member] for member in members])


def _swapped(going: list[tuple[int, Tensor]], like: Tensor, group: Group) -> dict[int, Tensor]:
    """Send each member its share, and return every member's part of the own one."""
    coming = [(each, torch.empty_like(like)) for each, _ in going]
    return _exchanged(going, coming, group)


def _told(shares: list[tuple[int, Tensor]], total: Tensor, group: Group) -> dict[int, Tensor]:
    """Send all members the own sum, and return theirs."""
    coming = [(each, torch.empty_like(share)) for each, share in shares]
    return _exchanged([(each, total) for each, _ in shares], coming, group)


def _exchanged(
    going: list[tuple[int, Tensor]], coming: list[tuple[int, Tensor]], group: Group
) -> dict[int, Tensor]:
    sends = [group.start_send(tensor, each, label=_SUMS) for each, tensor in going if tensor.numel()]
    comes = [group.start_receive(tensor, each, label=_SUMS) for each, tensor in coming if tensor.numel()]
    for pending in (*comes, *sends):
        pending.wait()
    return dict(coming)
