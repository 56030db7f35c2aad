"""Last step's rows, sent in the background: Wan et al., PipeGCN: Efficient Full-Graph Training, 2022.

A step reads the halo rows, and adds the gradients, that others sent during the step before; its own travel
while it goes on. The first step exchanges exactly and waits. Optionally rows are smoothed over steps,
m ← γ m + (1 − γ) row, and read as m / (1 − γ^k) after k rows, so that the start is not drawn to zero.
"""

from collections.abc import Callable, Mapping
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from weft.comm.group import Group
from weft.comm.plan import HaloPlan
from weft.config import Range
from weft.errors import RecipeError
from weft.exchanges.accuracy import AccuracyCost, on_communities, on_pubmed
from weft.exchanges.base import Arrival, Bits, Exchange, Later, exchanges

Smoothing = Annotated[float, Range(least=0, below=1)]


class _Channel:
    """One tensor's rows over the steps: those that are read now, and those under way for the next step."""

    def __init__(self, smooth: float, like: Tensor) -> None:
        self.smooth = smooth
        self.kind = (like.shape[1:], like.dtype)
        self.mean: Tensor | None = None
        self.count = 0
        self.age = 0
        self.arriving: Arrival | None = None
        self.sent: Arrival | None = None

    def read(self) -> Tensor:
        """Return the rows of this step, the same when called again."""
        # Waiting is left to the first read: until then the rows of the last step travel beside this one's
        # work.
        if self.arriving is not None:
            self._take(self.arriving.wait())
            self.arriving = None
        assert self.mean is not None, "the first exchange waits for its rows"
        return self.mean / (1.0 - self.smooth**self.count) if self.smooth else self.mean

    def turn(self) -> None:
        """End a step: what was sent in it is read in the next one."""
        self.read()
        # What came for this step was taken above even where nothing asked for it: the running mean counts
        # every step.
        self.arriving, self.sent = self.sent, None
        self.age = 1

    def _take(self, rows: Tensor) -> None:
        if self.smooth and self.mean is not None:
            self.mean = self.smooth * self.mean + (1.0 - self.smooth) * rows
        else:
            self.mean = (1.0 - self.smooth) * rows if self.smooth else rows
        self.count += 1


@exchanges.add("stale")
class Stale(Exchange):
    """Read the halo of the step before, sent in the background; `lag` 0 waits and is exact.

    `smooth_features` and `smooth_gradients` keep a running mean of what arrives (0.95 forgets slowly).
    """

    carries_over = True
    waits = False
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = (
        on_pubmed(0.48, 0.13, lag=1),
        on_communities(-0.30, 0.07, lag=1),
    )
    exact_at: ClassVar[Mapping[str, Any]] = {"lag": 0}

    @classmethod
    def check(cls, options: Mapping[str, Any], where: str) -> None:
        """Refuse to smooth what is exact."""
        for name in ("smooth_features", "smooth_gradients"):
            if options.get("lag") == 0 and options.get(name):
                raise RecipeError(f"{where}.{name}: lag = 0 is exact and smooths nothing; leave it out")

    def __init__(
        self,
        plan: HaloPlan,
        group: Group,
        clock: Tensor,
        *,
        lag: Annotated[int, Range(least=0, most=1)] = 1,
        smooth_features: Smoothing = 0.0,
        smooth_gradients: Smoothing = 0.0,
        bits: Bits = 32,
    ) -> None:
        super().__init__(plan, group, clock, bits=bits)
        self.lag = lag
        self._smooth = {"features": smooth_features, "gradients": smooth_gradients}
        self._channels: dict[tuple[str, int], _Channel] = {}

    def pull(self, h: Tensor, slot: int) -> Arrival:
        """Return last step's halo rows, and send this step's."""
        if not self.lag:
            return super().pull(h, slot)
        channel = self._send("features", slot, h, self.bring)
        return Later(channel.read)

    def push(self, gradient: Tensor, slot: int) -> Arrival:
        """Return last step's gradients, and send this step's."""
        if not self.lag:
            return super().push(gradient, slot)
        channel = self._send("gradients", slot, gradient, self.send_home)
        return Later(lambda: self.plan.sum_at_owner(channel.read()))

    def end_step(self) -> None:
        """Make what was sent in this step what the next one reads."""
        for channel in self._channels.values():
            channel.turn()

    def drain(self) -> None:
        """Wait for all that is under way."""
        for channel in self._channels.values():
            channel.read()

    def state(self) -> dict[str, Tensor]:
        """Return the rows that the next step reads, and what their means were made of."""
        self.drain()
        state: dict[str, Tensor] = {}
        for (what, slot), channel in self._channels.items():
            assert channel.mean is not None
            state[f"{what}.{slot}.mean"] = channel.mean
            state[f"{what}.{slot}.count"] = torch.tensor(channel.count)
        return state

    def load_state(self, state: Mapping[str, Tensor]) -> None:
        """Continue with those rows: no exchange waits."""
        self._channels.clear()
        for name in sorted(state):
            what, slot, kind = name.split(".")
            if kind == "mean":
                channel = _Channel(self._smooth[what], state[name])
                channel.mean, channel.age = state[name], 1
                channel.count = int(state[f"{what}.{slot}.count"])
                self._channels[what, int(slot)] = channel

    def _send(self, what: str, slot: int, rows: Tensor, send: Callable[..., Arrival]) -> _Channel:
        """Send rows for the next step and return the channel; for this one as well where it is the first."""
        channel = self._channels.get((what, slot))
        if channel is None or channel.kind != (rows.shape[1:], rows.dtype):
            channel = self._channels[what, slot] = _Channel(self._smooth[what], rows)
            channel.arriving = send(rows, slot)
        # The first step's rows serve the second as well, so nothing is sent twice then; and a replay of
        # forward in backward asks again for rows that are under way already.
        elif channel.age and channel.sent is None:
            channel.sent = send(rows, slot, background=True)
        count = self.plan.num_halo if what == "features" else len(self.plan.send_rows)
        self.group.ledger.used(channel.age, count)
        return channel
