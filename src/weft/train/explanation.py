"""What became of the messages of a model, as data, as text and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from weft.compiler.description import Description, Kernel, Operator
from weft.compiler.programs.cost import Work
from weft.sizes import shown
from weft.train.travel import Crossed

_WHERE = {
    "shared": "once",
    "source": "on sources",
    "relation": "on (relation, source)",
    "destination": "on destinations",
    "edge": "on edges",
    "pair": "on edges",
    "reduced": "after, on destinations",
}
_NO_MESSAGE = "no layer of this model calls block.propagate: aggregate and attend have kernels of their own"


@dataclass(frozen=True)
class ExplainedMessage:
    """One call of `block.propagate`."""

    name: str
    reduce: str
    sources: int
    destinations: int
    edges: int
    pays: bool
    """Whether there are so many edges that it runs as compiled."""
    reason: str
    """Why it is not compiled."""
    written: Sequence[Operator]
    """As it was written, all edges at once; nothing where it cannot be recorded."""
    compiled: Description | None
    crossed: tuple[Crossed, ...] = ()
    """What other workers read of rows, where there are any."""
    refused: bool = False
    """Whether there are several workers, which refuse it."""

    @property
    def verdict(self) -> str:
        """Whether it is compiled, and why not."""
        if self.refused:
            return f"refused on several workers, it depends on other edges: {self.reason}"
        if self.reason:
            return f"not compiled: {self.reason}"
        return (
            "compiled" if self.pays else "runs as it is: so few edges do not pay; with more it would run so:"
        )

    def lines(self) -> Iterator[str]:
        """Give the lines of text on it."""
        yield (
            f"{self.name}, reduced by {self.reduce}, {self.edges:,} edges, {self.sources:,} sources, "
            f"{self.destinations:,} destinations"
        )
        if self.reason or not self.pays:
            yield f"  {self.verdict}"
        if self.written:
            yield f"  as written, on all edges: {_cost(_total(self.written))}"
            yield from _operators(self.written, written=True)
        if self.compiled is not None:
            yield f"  compiled: {_cost(self.compiled.cost)}"
            yield from _operators(self.compiled.operators)
            for number, kernel in enumerate(self.compiled.kernels):
                yield from _kernel(number + 1, kernel)
        for each in self.crossed:
            yield f"  crosses: {each}"


@dataclass(frozen=True)
class Explanation:
    """What the compiler makes of each message of a model; `str` of it is text for people."""

    messages: tuple[ExplainedMessage, ...]
    workers: int = 1

    def __str__(self) -> str:
        """Return a paragraph a message."""
        if not self.messages:
            return _NO_MESSAGE
        return "\n".join(
            line
            for number, message in enumerate(self.messages)
            for line in _numbered(number + 1, message.lines())
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


def where(operator: Operator, *, written: bool = False) -> str:
    """Return where an operator runs, in words; as it is `written` that is on edges, whatever made it."""
    if written and operator.where in ("source", "destination"):
        return f"on edges, of {operator.where}s"
    return _WHERE[operator.where]


def is_view(operator: Operator) -> bool:
    """Return whether an operator shows a value in another shape, which costs nothing."""
    return operator.movement == "shape" and operator.cost == Work()


def extent(operator: Operator) -> str:
    """Return rows x width."""
    return f"{operator.rows:,} x {'x'.join(map(str, operator.shape)) or '1'}"


def _numbered(number: int, lines: Iterator[str]) -> Iterator[str]:
    yield f"message {number}: {next(lines)}"
    yield from lines


def _operators(operators: Sequence[Operator], *, written: bool = False) -> Iterator[str]:
    for each in operators:
        if each.movement == "input" or is_view(each):
            continue
        fused = ", ".join(f"kernel {number + 1}" for number in each.kernels)
        work = f"in {fused}" if fused else _cost(each.cost)
        runs = where(each, written=written)
        yield f"    {each.name:20} {runs:25} {each.movement:12} {extent(each):20} {work}"


def _kernel(number: int, kernel: Kernel) -> Iterator[str]:
    if kernel.reason:
        yield f"  kernel {number}: none, a smaller message in plain torch: {kernel.reason}"
        return
    reads = ", ".join(f"{source} {heads}x{wide}" for source, (heads, wide) in kernel.reads)
    steps = " ".join(kernel.steps) or "no step"
    name = f"a program of {len(kernel.steps)} steps" if kernel.name == "program" else f"kernel {kernel.name}"
    yield f"  kernel {number}: {name}; reads {reads}; {steps}; {_cost(kernel.forward)}"
    if kernel.backward is not None:
        yield (
            f"    backward: {_cost(kernel.backward)}, {kernel.again:,} of them to make values of edges "
            f"again; {shown(kernel.kept)} stay for it, of edges {stored_words(kernel)}"
        )
    elif kernel.kept:
        yield f"    backward: by the kernel itself; {shown(kernel.kept)} stay for it"


def stored_words(kernel: Kernel) -> str:
    """Return which values of edges are stored for backward."""
    return ", ".join(f"{op} {heads}x{wide}" for op, (heads, wide) in kernel.stored) or "nothing"


def _cost(cost: Work) -> str:
    if cost == Work():
        return "nothing moves"
    return f"reads {shown(cost.read)}, writes {shown(cost.written)}, {cost.operations:,} operations"


def _total(operators: Sequence[Operator]) -> Work:
    return sum((each.cost for each in operators), Work())
