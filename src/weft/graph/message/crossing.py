"""Messages of rows that others hold: the narrowest values that edges read of a row travel in its place."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from weft.compiler.ranks.crossing import Crossing, Sums, Travellers, crossing
from weft.compiler.ranks.opened import Opened, opened
from weft.compiler.tracing.trace import Role
from weft.graph.message.compiled import compiles, given_to, roles_of
from weft.graph.message.reduction import OWN, Propagation
from weft.graph.message.rehearsal import need_no_other_edges

Free = Callable[[Tensor], bool]
"""Whether the rows of sources are on all ranks that read them, or will be for every later step."""


def crossed(
    how: Propagation, free: Free, *, travels: tuple[Role, ...] = ("source",), back: bool = True
) -> Propagation:
    """Return the same messages of values that travel instead of the tensors given, where they are narrower.

    Each is made here, of the rows that the caller holds. All ranks get the same: shapes and the program
    decide, never the edges of a rank. Without `back` the way of gradients does not count, so that it does
    not matter whether there are any.
    """
    found = crossing_of(how, free, travels=travels, back=back)
    if found is not None:
        return _rest_of(how, *found)
    need_no_other_edges(how)
    return how


@dataclass(frozen=True)
class CrossedSums:
    """Sums that are merged over ranks in the place of summed messages, as they are narrower."""

    how: Propagation
    """What is summed."""
    _sums: Sums
    _inputs: list[Tensor]

    def finished(self, total: Tensor, degree: Tensor) -> Tensor:
        """Return the summed messages of rows, from the merged sums and the number of edges of each."""
        return self._sums.finished(total, self._inputs, degree)


def crossed_sums(how: Propagation, free: Free, *, travels: tuple[Role, ...]) -> CrossedSums | None:
    """Return the sums that a message is made of behind them; None where merging its own is no dearer."""
    behind, plain = (
        _found(how, free, travels, back=True, sums=sums) if how.adds else None for sums in (True, False)
    )
    if behind is None or plain is None or behind[0].cost >= plain[0].cost:
        need_no_other_edges(how)
        return None
    made, inputs = behind
    assert made.sums is not None
    return CrossedSums(replace(_rest_of(how, made, inputs), reduce="sum"), made.sums, inputs)


def _rest_of(how: Propagation, made: Crossing, inputs: list[Tensor]) -> Propagation:
    rows: dict[Role, int] = {
        "source": how.src[0].shape[0] if how.src else 0,
        "destination": how.dst[0].shape[0] if how.dst else 0,
        "shared": 0,
    }
    values = {role: stage(*[rows[role]] * 3, *inputs) for role, stage in made.made.items()}
    edge = [inputs[place] for place in made.edge]
    ends = values["source"], values["destination"], edge
    return Propagation(made.rest, *ends, how.reduce, values["shared"], complete=True)


def crossing_of(
    how: Propagation, free: Free, *, travels: tuple[Role, ...] = ("source",), back: bool = True
) -> tuple[Crossing, list[Tensor]] | None:
    """Return what crosses for a message and the tensors that it is made of; None: all that it was given."""
    found = _found(how, free, travels, back=back, sums=False)
    every = sum(role in travels for role in roles_of(how))
    if found is None or (all(each.given for each in found[0].sent) and len(found[0].sent) == every):
        return None
    return found


@dataclass(frozen=True)
class OpenedMessage:
    """A message that reduces its edges itself, as one that others reduce."""

    how: Propagation
    _made: Opened
    _inputs: list[Tensor]

    def finished(self, rows: Tensor, degree: Tensor) -> Tensor:
        """Return what the message gives, from reduced rows and the number of edges of each."""
        return self._made.behind.finished(rows, self._inputs, degree).to(self._made.dtype)


def opened_message(how: Propagation) -> OpenedMessage | str:
    """Return a message that reduces its edges itself taken apart, or why it is not."""
    if not compiles():
        return "the compiler is switched off"
    given = given_to(how)
    found = opened(how.message, roles_of(how), given, how.scratch)
    if isinstance(found, str):
        return found
    made, captures = found
    inputs = made.inputs(given, captures)
    roles: tuple[Role, ...] = ("source", "destination", "edge")
    src, dst, edge = ([inputs[place] for place in made.places[role]] for role in roles)
    shared = made.shared(0, 0, 0, *inputs)
    return OpenedMessage(
        Propagation(made.rest, src, dst, edge, made.reduce, shared, complete=True), made, inputs
    )


def _found(
    how: Propagation, free: Free, travels: tuple[Role, ...], *, back: bool, sums: bool
) -> tuple[Crossing, list[Tensor]] | None:
    if torch.compiler.is_compiling() or not compiles() or how.reduce == OWN:
        return None
    given, roles = [*how.per_edge, *how.params], roles_of(how)
    learns = back and torch.is_grad_enabled()
    ends = Travellers(
        travels,
        tuple(role == "source" and free(t) for role, t in zip(roles, given)),
        tuple(learns and t.requires_grad for t in given),
        learns,
    )
    found = crossing(how.message, roles, given, ends, sums=sums)
    if isinstance(found, str):
        return None
    made, captures = found
    return made, made.inputs(given, captures)
