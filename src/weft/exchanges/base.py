"""What every exchange is: halo rows brought forward, their gradients returned to the owners backward.

The pair enters autograd on every rank, also where a rank sends or gets nothing: a rank that left one out
would make fewer collectives than the others. It comes in two halves, so that local edges are worked on while
rows travel: forward between `start` and `finish`, backward between the gradients' departure and arrival.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol

import torch
from torch import Tensor

from weft.comm.balance import Matrix
from weft.comm.balance import bits as bits_of_links
from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.comm.pending import Pending
from weft.comm.plan import HaloPlan
from weft.config import bind
from weft.errors import RecipeError
from weft.exchanges.accuracy import AccuracyCost
from weft.exchanges.codec import EXACT, Codec
from weft.exchanges.drift import Drift, Meter
from weft.kernels.second import here_only
from weft.registry import Registry

Options = str | Mapping[str, Any]
Bits = Literal[2, 4, 8, 16, 32, "auto"]
MEAN_BITS = 8  # of "auto", which takes more on fast links and fewer on slow ones
_GIVEN = ("plan", "group", "clock")


class Arrival(Protocol):
    """Rows that come, or are there already."""

    def wait(self) -> Tensor:
        """Return them, the same when called again."""


class Later:
    """Rows that a function makes when they are waited for."""

    def __init__(self, make: Callable[[], Tensor]) -> None:
        self._make: Callable[[], Tensor] | None = make
        self._rows: Tensor | None = None

    def wait(self) -> Tensor:
        """Return them, the same when called again."""
        if self._make is not None:
            self._rows, self._make = self._make(), None
        assert self._rows is not None
        return self._rows


class Transfer:
    """Rows under way: what `start` gives and `finish` takes."""

    def __init__(self, exchange: "Exchange", slot: int) -> None:
        self.exchange, self.slot = exchange, slot
        self.token: Tensor | None = None  # ties both halves together in autograd
        self.rows: Arrival | None = None
        self.gradient: Arrival | None = None


class Exchange:
    """Brings the halo rows of a plan, exactly. Policies override what is sent, when, and what is kept.

    `bits` below 32 code what travels (see codec.py); a policy that allows it takes the option and passes it
    on. Calls are numbered within a step, and `slot` k means the same tensor on every rank: all of them make
    the same calls in the same order.
    """

    exact_at: ClassVar[Mapping[str, Any] | None] = {}
    """The options at which the policy changes nothing; None where there are none."""
    also_exact_at: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """Other options at which it changes nothing either."""
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = ()
    """What it was measured to cost where it is not exact; empty: not measured."""
    carries_over: ClassVar[bool] = False
    """Whether a step may read gradients of earlier ones."""
    waits: ClassVar[bool] = True
    """Whether a step waits for what is sent in it; else it is read a step later."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where the rows may lie."""
    parts_alone: ClassVar[bool] = False
    """Whether nothing crosses the network in training, and parts go by their own edges and degrees."""
    as_it_is: ClassVar[bool] = False
    """Whether it brings every row as it is, and nothing is remembered from step to step."""
    adapts: ClassVar[str] = ""
    """The option that a budget on the error chooses, where there is one."""

    def __init__(self, plan: HaloPlan, group: Group, clock: Tensor, *, bits: Bits = EXACT) -> None:
        self.whole_plan = plan
        self.plan = plan
        """The rows that are exchanged in this step."""
        self.group = group
        self.clock = clock
        """(seed, epoch, step): draws are a function of it."""
        self.kept: Tensor | None = None
        """[m] bool: the halo rows that exist in this step; None: all of them."""
        self.scale: float | Tensor = 1.0
        """What sums and means multiply halo rows with: one number, or one for each row that exists."""
        self.meter: Meter | None = None
        """What measures this step's error; None: nothing does."""
        self.auto_bits = bits == "auto"
        """Whether the bits are to be chosen by the speed of links."""
        self.codec = Codec(clock, MEAN_BITS if bits == "auto" else bits)
        self.kind = "halo"
        """What the ledger calls the traffic."""
        self._slot = 0

    @classmethod
    def check(cls, options: Mapping[str, Any], where: str) -> None:
        """Refuse options that do not go together, before any data is read."""

    @classmethod
    def is_exact(cls, options: Mapping[str, Any]) -> bool:
        """Return whether the policy changes nothing with these options."""
        points = () if cls.exact_at is None else (cls.exact_at, *cls.also_exact_at)
        coded = options.get("bits", EXACT) != EXACT
        return not coded and any(point.items() <= options.items() for point in points)

    @classmethod
    def period(cls, options: Mapping[str, Any]) -> int:
        """Return after how many steps on the whole graph, the first aside, what is sent repeats itself."""
        return 1

    def begin_step(self) -> None:
        """Begin a training step; every rank calls it before its forward pass.

        Called again before the step ends it begins it anew: calls that follow get what the first ones got.
        """
        self._slot = 0

    def end_step(self) -> None:
        """End a training step, after backward: what was written in it can be read from now on."""

    def drain(self) -> None:
        """Wait for what travels in the background, as before a checkpoint."""

    def state(self) -> dict[str, Tensor]:
        """Return what the next step needs from the steps before."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `state` gave."""

    def budget(self, error: float) -> None:
        """Begin to choose the option that `adapts` names so that the error is expected below `error`."""

    def adapt(self, drift: Drift) -> None:
        """Choose it anew after a measured step, the same on all ranks."""

    @property
    def wants_speed(self) -> bool:
        """Whether something is to be chosen by the speed of links."""
        return self.auto_bits

    def tune(self, speed: Tensor) -> None:
        """Choose what is "auto", a link at a time; `speed` [size, size] is in bytes a second.

        All ranks call it with the same numbers, before the first step.
        """
        if self.auto_bits:
            chosen = bits_of_links(self._rows_of_links(), speed.numpy(), mean=MEAN_BITS)
            self.codec.links = torch.from_numpy(chosen)

    def tuned(self) -> dict[str, Tensor]:
        """Return what `tune` chose, for a checkpoint: a run goes on with it, however fast links are then."""
        return {} if self.codec.links is None else {"link_bits": self.codec.links}

    def load_tuned(self, state: Mapping[str, Tensor]) -> None:
        """Take back what `tuned` gave."""
        self.codec.links = state.get("link_bits", self.codec.links)

    def _rows_of_links(self) -> Matrix:
        """Return the rows that each member sends to each other in a forward pass."""
        sent = torch.tensor([self.whole_plan.send_counts], dtype=torch.float64)
        rows: Matrix = self.group.all_gather(sent, label=Label("plan")).wait().numpy()
        return rows

    def settings(self) -> dict[str, Any]:
        """Return what is chosen at present, for an event."""
        return {"bits": self.codec.bits if self.codec.links is None else self.codec.links.tolist()}

    def gather(self, h: Tensor) -> Tensor:
        """Return the halo rows that exist in this step, [kept, ...], in halo order; `h` are the own rows."""
        return self.finish(self.start(h))

    def start(self, h: Tensor) -> Transfer:
        """Send what others need of `h`, and return at once."""
        transfer = Transfer(self, self._slot)
        self._slot += 1
        if self.meter is not None:
            self.meter.sent(transfer.slot, h.detach())
        # Made before the local work begins, so that autograd, which runs what was made last first, comes to
        # this half after the backward of that work: the gradients that `_Finish` sent travel meanwhile.
        transfer.token = _Start.apply(h, transfer)  # type: ignore[no-untyped-call]
        return transfer

    def finish(self, transfer: Transfer) -> Tensor:
        """Return the rows that `start` asked for."""
        rows: Tensor = _Finish.apply(transfer.token, transfer)  # type: ignore[no-untyped-call]
        if self.meter is not None:
            self.meter.arrived(transfer.slot, rows.detach(), self.kept, self.scale)
        return rows

    # What policies override: both are called without autograd.

    def pull(self, h: Tensor, slot: int) -> Arrival:
        """Begin to bring the halo rows."""
        return self.bring(h, slot)

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Begin to return the gradients of halo rows; the adjoint of `pull`."""
        return self.send_home(gradient, slot).then(self.plan.sum_at_owner)

    # What they build on

    def bring(self, h: Tensor, slot: int, *, background: bool = False) -> Pending:
        """Begin to bring the halo rows of `h`, in halo order, coded where the exchange is."""
        plan = self.plan
        return self.codec.move(
            self.group,
            h,
            rows=plan.send_rows,
            ids=plan.send_ids,
            counts=(plan.send_counts, plan.recv_counts),
            places=plan.order,
            background=background,
            label=Label(self.kind, slot),
        )

    def send_home(self, gradient: Tensor, slot: int, *, background: bool = False) -> Pending:
        """Begin to send gradients of halo rows to the owners; gives those that came, as in `send_rows`."""
        plan = self.plan
        return self.codec.move(
            self.group,
            gradient,
            rows=plan.order,
            ids=plan.recv_ids,
            counts=(plan.recv_counts, plan.send_counts),
            background=background,
            label=Label(self.kind, slot, "backward"),
        )


exchanges: Registry[type[Exchange]] = Registry("exchange", "weft.exchanges")


def check_exchange(options: Options, *, where: str = "strategy.exchange") -> tuple[str, dict[str, Any]]:
    """Return the name and the options, converted, of an exchange as a recipe gives it; refuse mistakes."""
    named = {"name": options} if isinstance(options, str) else dict(options)
    name = named.pop("name", None)
    if not isinstance(name, str):
        raise RecipeError(f'{where}: expected a name or a table with one, such as {{name = "exact"}}')
    bound = bind(exchanges[name], named, where, given=_GIVEN)
    exchanges[name].check(bound, where)
    return name, bound


def make_exchange(options: Options, plan: HaloPlan, group: Group, clock: Tensor) -> Exchange:
    """Return the exchange that a recipe describes."""
    name, bound = check_exchange(options)
    return exchanges[name](plan, group, clock, **bound)


class _Start(torch.autograd.Function):
    """Forward: rows depart. Backward: wait for the gradients, which have travelled meanwhile."""

    @staticmethod
    def forward(ctx: Any, h: Tensor, transfer: Transfer) -> Tensor:
        ctx.transfer = transfer
        transfer.rows = transfer.exchange.pull(h.detach(), transfer.slot)
        return h.new_zeros(1)

    @staticmethod
    @here_only
    def backward(ctx: Any, *_: Tensor) -> tuple[Tensor | None, ...]:
        pending, ctx.transfer.gradient = ctx.transfer.gradient, None
        assert pending is not None, "the second half ran its backward first"
        return pending.wait(), None


class _Finish(torch.autograd.Function):
    """Forward: wait for the rows. Backward: their gradients depart."""

    @staticmethod
    def forward(ctx: Any, token: Tensor, transfer: Transfer) -> Tensor:
        ctx.transfer = transfer
        pending, transfer.rows = transfer.rows, None
        assert pending is not None, "a transfer is finished once"
        return pending.wait().detach()  # what a policy keeps must not become part of the graph of a step

    @staticmethod
    @here_only
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        transfer = ctx.transfer
        transfer.gradient = transfer.exchange.push(gradients[0].detach(), transfer.slot)
        return gradients[0].new_zeros(1), None
