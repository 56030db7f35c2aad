"""`propagate` by the compiler: on nodes what depends on one end alone, on edges a program or fewer operators.

A message that is not compiled, and a graph too small for it to pay, run as they are (`propagate`).
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from weft import kernels
from weft.compiler.compile import Compiled, Reduction, compiled
from weft.compiler.execute import Reduced, execute, read_by_pairs, shaped
from weft.compiler.programs.match import match
from weft.compiler.programs.program import Edges
from weft.compiler.programs.run import obstacle, reduce_edges
from weft.compiler.relation_pairs import RelationPairs
from weft.compiler.tracing.captures import Reason
from weft.compiler.tracing.trace import Role
from weft.graph.message.reduction import OWN, Propagation

if TYPE_CHECKING:
    from weft.graph.message.block import Block

Plain = Callable[["Block", Propagation], Reduced]
"""How messages are reduced without the compiler."""

LEAST_NUMBERS = 1 << 15
"""Numbers that messages read, edges × width, below which plain torch is as fast."""

REDUCTIONS = ("sum", "max", "min", "softmax")
"""Those that programs have."""
_COMPILED = (*REDUCTIONS, OWN)
"""And messages that are made of these."""

SWITCHED_OFF = "the compiler is off: weft.compile_messages(True) switches it on"

_switch = {"on": True}


@dataclass(frozen=True)
class Asked:
    """A call of `propagate`, and what the compiler made of it."""

    block: "Block"
    how: Propagation
    found: tuple[Compiled, Any] | str


_watching: list[Asked] | None = None


@contextmanager
def watched() -> Iterator[list[Asked]]:
    """Note every call of `propagate` in this process while it lasts; one around it goes on afterwards."""
    global _watching
    asked: list[Asked] = []
    before, _watching = _watching, asked
    try:
        yield asked
    finally:
        _watching = before


def compile_messages(on: bool) -> bool:
    """Switch the compiler of messages on or off for this process; return what it was."""
    before = _switch["on"]
    _switch["on"] = bool(on)
    return before


def compiles() -> bool:
    """Return whether the compiler is on."""
    return _switch["on"]


def propagate_compiled(
    block: "Block", how: Propagation, plain: Plain, *, beside: bool = False, always: bool = False
) -> Reduced | None:
    """Return the reduced messages, and with `beside` what stands beside them; None: not by the compiler.

    `plain` reduces what has no program. With `always` it is by the compiler also where that does not pay.
    """
    if _watching is not None:
        _watching.append(Asked(block, how, compiled_of(how) if compiles() else SWITCHED_OFF))
    if not compiles() or how.kernel_reduce not in _COMPILED or not (always or pays(block, how)):
        return None
    found = compiled_of(how)
    if isinstance(found, str):
        return None
    made, captured = found
    if beside and how.kernel_reduce != "sum" and made.after is not None:
        return None  # the parts of a joined message are reduced apart: nothing stands beside them all
    inputs = made.inputs(given_to(how), captured)
    if made.by_relation is not None:
        block, inputs = _over_pairs(block, made, inputs)
    edges = program_edges(block)

    def one(reduction: Reduction, values: Sequence[Tensor]) -> Reduced:
        return _reduced(block, edges, reduction, values, plain, beside)

    return execute(made, inputs, edges, one)


def compiled_of(how: Propagation, *, without: tuple[str, ...] = ()) -> tuple[Compiled, Any] | Reason:
    """Return a message compiled with what it captures, or why it is not; `without` leaves passes out."""
    return compiled(
        how.message, roles_of(how), given_to(how), how.kernel_reduce, how.scratch, without=without
    )


def roles_of(how: Propagation) -> list[Role]:
    """Return what each argument of a message is a row of."""
    kinds: tuple[Role, ...] = ("source", "destination", "edge", "shared", "index")
    counts = (*how.counts, int(how.reduce == OWN))
    return [role for role, count in zip(kinds, counts) for _ in range(count)]


def given_to(how: Propagation) -> list[Tensor]:
    """Return the tensors of a message; in the place of rows' numbers, which are not read, one without any."""
    numbers = [torch.empty(0, dtype=torch.int64, device=how.per_edge[0].device)] if how.reduce == OWN else []
    return [*how.per_edge, *how.params, *numbers]


def pays(block: "Block", how: Propagation) -> bool:
    """Return whether there are enough edges, and more than nodes where the message runs on nodes in part."""
    if not how.per_edge:
        return False
    width = sum(t[:1].numel() if len(t) else 0 for t in how.per_edge)
    if block.num_edges * width < LEAST_NUMBERS:
        return False
    if block.num_edges >= max(block.num_src, block.num_dst):
        return True
    found = compiled_of(how) if how.kernel_reduce in _COMPILED else ""
    return not isinstance(found, str) and not found[0].on_nodes


def _reduced(
    block: "Block", edges: Edges, reduction: Reduction, values: Sequence[Tensor], plain: Plain, beside: bool
) -> Reduced:
    loads = [values[place] for place in reduction.loads]
    if reduction.program is not None:
        kernel = None if beside and reduction.kind != "sum" else match(reduction.program)
        if kernel is not None:
            out = kernel.run(block.indptr, block.indices, block.transposed_for(*loads), loads)
            return shaped(reduction, out, block.num_dst), None
        if not obstacle(reduction.program, edges, loads):
            out, other = reduce_edges(reduction.program, edges, lambda: transposed_edges(block), loads)
            other = (
                other
                if other is None or other.is_floating_point()
                else shaped(reduction, other, block.num_dst)
            )
            other = other.squeeze(2) if other is not None and reduction.kind == "softmax" else other
            return shaped(reduction, out, block.num_dst), other
    return plain(block, _smaller(reduction, values))


def _over_pairs(block: "Block", made: Compiled, inputs: list[Tensor]) -> tuple["Block", list[Tensor]]:
    """Return the block whose sources are (relation, source) pairs, and all that a message then takes."""
    kind, values = read_by_pairs(made, inputs, program_edges(block))
    over, pairs = pairs_of(block, made, kind)
    return over, [*inputs, *pairs.inputs(values)]


def pairs_of(block: "Block", made: Compiled, kind: Tensor) -> tuple["Block", RelationPairs]:
    """Return the pairs that the edges of a block read, as a block and as they are; the last are kept."""
    from weft.graph.message.block import Block  # which runs messages by this module

    assert made.by_relation is not None
    kept: dict[str, tuple[Tensor, Any, tuple[Block, RelationPairs]]]
    kept = block.cached("pairs of messages", dict)
    version, last = _version(kind), kept.get("last")
    if last is not None and last[0] is kind and version is not None and last[1] == version:
        return last[2]
    with torch.inference_mode(False), torch.no_grad():
        pairs = made.by_relation.pairs(kind, program_edges(block))
        over = Block(block.indptr, pairs.edges.other, num_src=pairs.edges.num_other)
    kept["last"] = kind, version, (over, pairs)  # one value: another thread may ask for other relations
    return over, pairs


def _version(kind: Tensor) -> tuple[int, int | None] | None:
    """Return what changes when somebody writes to a tensor; `.data` and numpy are seen on the CPU alone."""
    if kind.is_inference():
        return None
    return kind._version, kernels.fingerprint(kind) if kind.is_cpu else None


def program_edges(block: "Block") -> Edges:
    """Return the edges that programs run over; kept."""
    at = block.indptr, block.indices, block.num_src
    return block.cached("program edges", lambda: Edges(*at, padded=block.padded))


def transposed_edges(block: "Block") -> Edges:
    """Return them by source; kept."""

    def make() -> Edges:
        back = block.transposed
        return Edges(back.indptr, back.indices, block.num_dst, back.edges, block.padded)

    return block.cached("transposed program edges", make)


def _smaller(reduction: Reduction, values: Sequence[Tensor]) -> Propagation:
    """Return the message of what is left on edges."""
    taken = {role: [values[place] for place in places] for role, places in reduction.inputs.items()}
    stage, attends = reduction.message, reduction.kind == "softmax"

    def message(*rows: Tensor) -> Any:
        made = stage(0, 0, rows[0].shape[0], *rows)
        return tuple(made) if attends else made[0]

    return Propagation(
        message,
        taken["source"],
        taken["destination"],
        taken["edge"],
        reduction.kind,
        taken["shared"],
        complete=True,
    )


__all__ = [
    "compile_messages",
    "compiled_of",
    "compiles",
    "given_to",
    "pairs_of",
    "pays",
    "program_edges",
    "propagate_compiled",
    "roles_of",
    "transposed_edges",
]
