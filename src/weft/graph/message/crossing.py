"""Messages of rows that others hold: the narrowest values that edges read of a row travel in its place."""

from collections.abc import Callable

import torch
from torch import Tensor

from weft.compiler.crossing import Crossing, Travellers, crossing
from weft.compiler.trace import Role
from weft.graph.message.compiled import compiles, roles_of
from weft.graph.message.reduction import OWN, Propagation

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
    if found is None:
        return how
    made, inputs = found
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
    if torch.compiler.is_compiling() or not compiles() or how.reduce == OWN:
        return None
    given = [*how.per_edge, *how.params]
    learns = back and torch.is_grad_enabled()
    roles = roles_of(how)
    ends = Travellers(
        travels,
        tuple(role == "source" and free(t) for role, t in zip(roles, given)),
        tuple(learns and t.requires_grad for t in given),
        learns,
    )
    found = crossing(how.message, roles, given, ends)
    if isinstance(found, str):
        return None
    made, captures = found
    every = sum(role in travels for role in roles)
    if all(each.given for each in made.sent) and len(made.sent) == every:
        return None
    return made, made.inputs(given, captures)
