"""One operation over the edges of a block, part by part: at most two parts of remote rows exist at a time.

Forward fetches the rows of a part while the part before is worked on, reduces them and lets them go. Backward
does without the rows where it can: then the gradients of one part return to their owners while those of the
next are computed. Where it needs them it fetches them again and makes again what forward made.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import get_gradient_edge

from weft.exchanges.base import Arrival
from weft.graph.message.block import Block, PairTransform
from weft.graph.message.replay import ForwardState
from weft.graph.reductions import Running
from weft.kernels.second import first_derivatives_only
from weft.strategies.sequential.parts import EdgeParts, Part

Rows = list[Tensor]
Extra = Sequence[Tensor | None]


class Ending(ABC):
    """What becomes of the rows of all parts: a sum, a largest value, attention, messages."""

    needs_rows: bool = True
    """Whether backward looks at the rows."""
    replayed: Callable[..., Any] | None = None
    """The function of its user's that it runs, and again in backward; None: there is none."""
    dtype: torch.dtype
    """That of the result."""

    def __init__(self, running: Running) -> None:
        self.running = running  # what the parts so far were reduced to

    @abstractmethod
    def add(self, part: Part, edges: Block, rows: Rows, extra: Extra) -> None:
        """Take the rows of a part; `edges` are its edges, between its destinations and these rows."""

    def result(self) -> Tensor:
        """Return the reduced rows."""
        return self.running.whole.value.to(self.dtype)

    @abstractmethod
    def gradients(
        self, part: Part, edges: Block, rows: Rows, extra: Extra, grad: Tensor, totals: "Totals"
    ) -> list[Tensor]:
        """Return the gradients of a part's rows from that of the result; those of `extra` go to `totals`.

        Without `needs_rows`, `rows` is empty.
        """


@dataclass(frozen=True)
class Totals:
    """The gradients of the tensors beside the rows, filled part by part; None where none is wanted."""

    of: Sequence[Tensor | None]

    @staticmethod
    def like(tensors: Extra, needs: Sequence[bool]) -> "Totals":
        """Return zeros where a gradient is wanted."""
        return Totals(
            [torch.zeros_like(t) if need and t is not None else None for t, need in zip(tensors, needs)]
        )


@dataclass(frozen=True)
class Call:
    """What is computed over which parts. The tensors of a call are `num_src` own rows, then parameters of
    `transform`, then what the ending takes beside rows."""

    parts: EdgeParts
    ending: Ending
    num_src: int
    places: Sequence[int]
    """Which of the fetched tensors each argument is: one that is given twice travels once."""
    num_params: int = 0
    transform: PairTransform | None = None
    by_relation: bool = True
    """Whether the transform makes a row for each (relation, source) pair; else for each source."""
    kind: str = "halo"
    slots: Sequence[int] = field(default_factory=list)

    @property
    def needs_rows(self) -> bool:
        """Whether backward fetches the rows again."""
        return self.transform is not None or self.ending.needs_rows

    def split(self, tensors: Sequence[Any]) -> tuple[list[Tensor], list[Tensor], list[Any]]:
        """Return own rows, parameters and the rest."""
        middle = self.num_src + self.num_params
        return list(tensors[: self.num_src]), list(tensors[self.num_src : middle]), list(tensors[middle:])

    def made(self, part: Part, rows: Rows, params: Sequence[Tensor]) -> tuple[Block, Rows]:
        """Return the edges and rows that the ending is given."""
        given = [rows[place] for place in self.places]
        if self.transform is None:
            return part.block, given
        edges = part.block.by_relation() if self.by_relation else part.block
        made = self.transform(edges, *given, *params)
        return edges, list(made) if isinstance(made, tuple) else [made]

    def pull(self, number: int, src: Sequence[Tensor]) -> list[Arrival]:
        """Begin to fetch the rows of a remote part, where there is one of that number."""
        if number >= len(self.parts.remote):
            return []
        brings = self.parts.remote[number].round
        assert brings is not None, "remote parts have rounds"
        return [brings.pull(t, slot, self.kind) for t, slot in zip(src, self.slots)]


def run_in_parts(call: Call, tensors: Sequence[Tensor | None]) -> Tensor:
    """Return what the ending makes of all parts; differentiable in every tensor."""
    out: Tensor = _InParts.apply(call, *tensors)  # type: ignore[no-untyped-call]
    return out


def _visit(call: Call, src: Sequence[Tensor], visit: Callable[[Part, Rows], None]) -> None:
    """Call `visit` with every part and its rows; the next remote part is under way meanwhile."""
    # The first remote rows set out before own parts are worked on, behind which their travel hides.
    pending = call.pull(0, src)
    for part in call.parts.own:
        visit(part, part.of_own(src))
    for number, part in enumerate(call.parts.remote):
        rows = [each.wait() for each in pending]
        pending = call.pull(number + 1, src)
        visit(part, rows)
        del rows  # before the part after the next is asked for


class _InParts(torch.autograd.Function):
    """The operation and its gradients. A replay makes random messages the same again."""

    @staticmethod
    def forward(ctx: Any, call: Call, *tensors: Tensor | None) -> Tensor:
        src, params, extra = call.split(tensors)
        given = [t for t in tensors if t is not None]
        again = call.ending.replayed if any(ctx.needs_input_grad) else None
        ctx.call, ctx.replay = call, ForwardState(given, [] if again is None else [again])

        def visit(part: Part, rows: Rows) -> None:
            # The first part tells the shape of the result, also where a rank has no edge.
            if part.block.num_edges or part is call.parts.own[0]:
                call.ending.add(part, *call.made(part, rows, params), extra)

        with ctx.replay.noted():
            _visit(call, src, visit)
        out = call.ending.result()
        ctx.shapes = [(t.shape, t.dtype, t.device) for t in src]
        # Own rows are not kept either where backward does without: their shapes are enough for the gradients.
        kept = tensors if call.needs_rows else (*[None] * call.num_src, *tensors[call.num_src :])
        ctx.save_for_backward(*kept, *call.ending.running.let_go())
        return out

    @staticmethod
    @first_derivatives_only("the strategy 'sequential'", "need another strategy: 'single'")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        call, count, needs = ctx.call, len(ctx.needs_input_grad) - 1, ctx.needs_input_grad[1:]
        tensors = ctx.saved_tensors[:count]
        call.ending.running.take_back(ctx.saved_tensors[count:])
        src, params, extra = call.split(tensors)
        wanted, of_params, of_extra = call.split(needs)
        homeward = _Homeward(call, wanted, ctx.shapes)
        totals = [Totals.like(params, of_params), Totals.like(extra, of_extra)]
        work = _Backward(call, grad.contiguous(), params, extra, totals, wanted)
        if call.needs_rows:
            with ctx.replay():
                _visit(call, src, lambda part, rows: homeward.give(part, work.gradients(part, rows)))
        elif any(needs):
            # One remote part first: its gradients travel while those of all own parts are computed.
            for part in (*call.parts.remote[:1], *call.parts.own, *call.parts.remote[1:]):
                homeward.give(part, work.gradients(part, []))
        call.ending.running.let_go()
        return None, *homeward.arrived(), *totals[0].of, *totals[1].of


@dataclass(frozen=True)
class _Backward:
    """The gradients of one part after the other."""

    call: Call
    grad: Tensor
    params: Sequence[Tensor]
    extra: Extra
    totals: Sequence[Totals]
    wanted: Sequence[bool]

    def gradients(self, part: Part, rows: Rows) -> list[Tensor | None]:
        """Return those of the rows that were fetched, and add the others to the totals."""
        # Zeros are sent all the same: the owner waits for the gradients of every round.
        if rows and not part.block.num_edges:
            return [torch.zeros_like(t) for t in rows]
        if self.call.transform is None:
            given = [rows[place] for place in self.call.places] if rows else []
            found = self._ending(part, part.block, given)
            return self._fetched(found)
        return self._through(part, rows)

    def _through(self, part: Part, rows: Rows) -> list[Tensor | None]:
        """Make the rows of pairs again, with gradients, and go back through what made them."""
        # Cut off from the graph of the step, so that what is made again for one part is let go before the
        # next.
        leaves = [t.detach().requires_grad_(want) for t, want in zip(rows, self.wanted)]
        params = [
            t.detach().requires_grad_(total is not None) for t, total in zip(self.params, self.totals[0].of)
        ]
        with torch.enable_grad():
            edges, made = self.call.made(part, leaves, params)
        needed = [t.detach() for t in made] if self.call.ending.needs_rows else []
        ways = [get_gradient_edge(t) if t.requires_grad else None for t in made]
        del made  # where nobody looks at them again, their gradients take their place in memory
        found = self._ending(part, edges, needed)
        live = [(way, g) for way, g in zip(ways, found) if way is not None]
        inputs = [t for t in (*leaves, *params) if t.requires_grad]
        if not live or not inputs:
            return [torch.zeros_like(t) for t in rows]
        outputs, grads = zip(*live)
        del needed, found, live
        got = iter(torch.autograd.grad(outputs, inputs, grads, allow_unused=True))
        of_leaves = [next(got) if t.requires_grad else None for t in leaves]
        for total, param in zip(self.totals[0].of, params):
            added = next(got) if param.requires_grad else None
            if total is not None and added is not None:
                total += added
        return [torch.zeros_like(t) if g is None else g for t, g in zip(rows, of_leaves)]

    def _ending(self, part: Part, edges: Block, rows: Rows) -> list[Tensor]:
        return self.call.ending.gradients(part, edges, rows, self.extra, self.grad, self.totals[1])

    def _fetched(self, found: Sequence[Tensor]) -> list[Tensor | None]:
        """Return one gradient per fetched tensor: the sum over the arguments that it is."""
        summed: list[Tensor | None] = [None] * self.call.num_src
        for place, gradient in zip(self.call.places, found):
            before = summed[place]
            summed[place] = gradient if before is None else before + gradient
        return summed


class _Homeward:
    """Gradients of rows on their way to the owners; those of one part travel while the next are computed."""

    def __init__(self, call: Call, wanted: Sequence[bool], shapes: Sequence[Any]) -> None:
        self.call, self.wanted, self.shapes = call, wanted, shapes
        self._totals: list[Tensor | None] = [None] * len(wanted)
        self._under_way: list[tuple[int, Tensor, Arrival]] = []

    def give(self, part: Part, gradients: Sequence[Tensor | None]) -> None:
        """Send the gradients of a part's rows, or add them where the rows are own ones."""
        departed = []
        for number, (want, gradient) in enumerate(zip(self.wanted, gradients)):
            if not want:
                continue
            assert gradient is not None, "every wanted gradient is made, on every rank"
            gradient = gradient.to(self.shapes[number][1])
            if part.round is not None:
                pushed = part.round.push(gradient, self.call.slots[number])
                departed.append((number, part.round.sent, pushed))
            elif self._totals[number] is None and isinstance(part.columns, slice):
                self._totals[number] = gradient
            else:
                part.add_columns(self._total(number), gradient)
        if part.round is not None:
            self._land()
            # Those of the part before have landed by now; two parts at most are in memory, as in forward.
            self._under_way = departed

    def arrived(self) -> list[Tensor | None]:
        """Return the gradients of the own rows, once all have come."""
        self._land()
        return [self._total(number) if want else None for number, want in enumerate(self.wanted)]

    def _total(self, number: int) -> Tensor:
        shape, dtype, device = self.shapes[number]
        held = self._totals[number]
        if held is None:
            held = self._totals[number] = torch.zeros(shape, dtype=dtype, device=device)
        return held

    def _land(self) -> None:
        for number, rows, pushed in self._under_way:
            self._total(number).index_add_(0, rows, pushed.wait())
        self._under_way = []
