"""The simulation itself: workers make their moves, flows travel between them, event by event."""

import heapq
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from weft.plan.wires import Wires
from weft.simulate.flows import FlowsUnderWay
from weft.simulate.schedule import Arrive, Compute, Depart, StepSchedule
from weft.simulate.sharing import Rates


@dataclass
class Played:
    """What came of some steps."""

    ends: list[float] = field(default_factory=list)
    """When the last worker ended each step."""
    computing: Rates = field(default_factory=lambda: np.zeros(0))
    """[workers] seconds of work, in all steps."""
    waiting: dict[str, Rates] = field(default_factory=dict)
    """[workers] seconds that each stood waiting, by purpose."""
    carried: Rates = field(default_factory=lambda: np.zeros(0))
    """Bytes of each link."""
    events: int = 0

    @property
    def step(self) -> float:
        """Seconds of a step: of those after the first, which begins with nothing under way."""
        if len(self.ends) == 1:
            return self.ends[0]
        return (self.ends[-1] - self.ends[0]) / (len(self.ends) - 1)


class _Delivery:
    """One shipment of one step on its way."""

    def __init__(self, workers: int, joint: bool) -> None:
        self.joint = joint
        self.departed = 0
        self.pending = np.zeros(workers, dtype=np.int64)
        self.ready = np.zeros(workers)  # when the last bytes for each worker came
        self.left = 0


class Play:
    """Some steps of a schedule, all workers alike in what they do and each with its own seconds."""

    def __init__(self, schedule: StepSchedule, wires: Wires, *, steps: int = 3, grain: float = 0.0) -> None:
        self.schedule, self.wires, self.steps = schedule, wires, steps
        self.flows = FlowsUnderWay(wires, grain)
        count = schedule.workers
        self.played = Played([0.0] * steps, np.zeros(count))
        self.waiting: dict[str, Rates] = defaultdict(lambda: np.zeros(count))
        self._place = np.zeros(count, dtype=np.int64)  # the move that each worker is at, over all steps
        self._agenda: list[tuple[float, int, int, int]] = []  # when, in which order, who, what departs or -1
        self._order = 0
        self._deliveries: dict[tuple[int, int], _Delivery] = {}
        self._blocked: dict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        self._senders = [self._by_sender(number) for number in range(len(schedule.shipments))]

    def run(self) -> Played:
        """Go on until every worker has made all moves."""
        for worker in range(self.schedule.workers):
            self._note(0.0, worker)
        flows, grain = self.flows, self.flows.grain
        while self._agenda or not flows.idle:
            when = min(self._agenda[0][0] if self._agenda else np.inf, flows.next_end())
            until = max(flows.now, when) + grain
            self._deliver(*flows.advance(until))
            while self._agenda and self._agenda[0][0] <= until:
                now, _, worker, departing = heapq.heappop(self._agenda)
                self.played.events += 1
                if departing < 0:
                    self._go(worker, now)
                else:
                    self._begin(departing, worker, now)
        assert (self._place == self.steps * len(self.schedule.moves)).all(), "a worker waits for ever"
        self.played.waiting, self.played.carried = dict(self.waiting), flows.carried
        return self.played

    def _note(self, when: float, worker: int, departing: int = -1) -> None:
        self._order += 1
        heapq.heappush(self._agenda, (when, self._order, worker, departing))

    def _go(self, worker: int, now: float) -> None:
        """Have a worker make moves until one takes time."""
        moves = self.schedule.moves
        while self._place[worker] < self.steps * len(moves):
            step, place = divmod(int(self._place[worker]), len(moves))
            move = moves[place]
            if isinstance(move, Arrive) and not self._there(worker, now, step, move):
                return
            self._place[worker] += 1
            if isinstance(move, Depart):
                self._depart(worker, now, step, move.shipment)
            if place + 1 == len(moves):
                self.played.ends[step] = max(self.played.ends[step], now)
            if isinstance(move, Compute) and move.seconds[worker] > 0:
                spent = float(move.seconds[worker])
                self.played.computing[worker] += spent
                if place + 1 == len(moves):
                    self.played.ends[step] = max(self.played.ends[step], now + spent)
                self._note(now + spent, worker)
                return

    def _there(self, worker: int, now: float, step: int, move: Arrive) -> bool:
        """Return whether what a worker waits for is there; else have it go on when it is."""
        key = step - move.late, move.shipment
        if key[0] < 0:
            return True
        delivery = self._delivery(key)
        if not self._complete(delivery, worker):
            self._blocked[key][worker] = now
            return False
        if delivery.ready[worker] > now:
            self.waiting[self.schedule.shipments[move.shipment].kind][worker] += delivery.ready[worker] - now
            self._note(float(delivery.ready[worker]), worker)
            return False
        return True

    def _complete(self, delivery: _Delivery, worker: int) -> bool:
        if delivery.joint:
            return delivery.departed == self.schedule.workers and delivery.left == 0
        return not delivery.pending[worker]

    def _delivery(self, key: tuple[int, int]) -> _Delivery:
        if key not in self._deliveries:
            shipment = self.schedule.shipments[key[1]]
            made = _Delivery(self.schedule.workers, shipment.joint)
            made.pending += np.bincount(shipment.dst, minlength=self.schedule.workers)
            made.left = len(shipment.dst)
            self._deliveries[key] = made
        return self._deliveries[key]

    def _depart(self, worker: int, now: float, step: int, number: int) -> None:
        delivery, shipment = self._delivery((step, number)), self.schedule.shipments[number]
        delivery.departed += 1
        code = step * len(self.schedule.shipments) + number
        if not shipment.joint:
            self._note(now + float(shipment.preparing[worker]), worker, code)
        elif delivery.departed == self.schedule.workers:  # the last one: all begin
            self._note(now + float(shipment.preparing.max()), worker, code)

    def _begin(self, code: int, worker: int, now: float) -> None:
        step, number = divmod(code, len(self.schedule.shipments))
        shipment = self.schedule.shipments[number]
        if shipment.joint:
            self._delivery((step, number)).ready[:] = now
            self.flows.begin(code, shipment.src, shipment.dst, shipment.size)
            if not len(shipment.src):
                self._release((step, number), range(self.schedule.workers))
            return
        chosen = self._senders[number].get(worker)
        if chosen is not None:
            self.flows.begin(code, shipment.src[chosen], shipment.dst[chosen], shipment.size[chosen])

    def _by_sender(self, number: int) -> dict[int, np.ndarray]:
        src = self.schedule.shipments[number].src
        order = np.argsort(src, kind="stable")
        firsts = np.flatnonzero(np.diff(src[order], prepend=-1))
        return {int(src[group[0]]): group for group in np.split(order, firsts[1:]) if len(group)}

    def _deliver(self, tags: np.ndarray, times: Rates) -> None:
        """Count what came, and have those go on whose last bytes these were."""
        for code in np.unique(tags[:, 0]) if len(tags) else ():
            chosen = tags[:, 0] == code
            key = divmod(int(code), len(self.schedule.shipments))
            delivery, shipment = self._delivery(key), self.schedule.shipments[key[1]]
            who, when = tags[chosen, 1], times[chosen]
            delivery.left -= len(who)
            if shipment.joint:
                more = (shipment.rounds - 1) * float(self.wires.delays(shipment.src, shipment.dst).max())
                np.maximum(delivery.ready, float(when.max()) + more, out=delivery.ready)
                if not delivery.left:
                    self._release(key, range(self.schedule.workers))
                continue
            np.maximum.at(delivery.ready, who, when)
            np.subtract.at(delivery.pending, who, 1)
            self._release(key, np.unique(who[delivery.pending[who] == 0]).tolist())

    def _release(self, key: tuple[int, int], workers: object) -> None:
        blocked, delivery = self._blocked[key], self._deliveries[key]
        kind = self.schedule.shipments[key[1]].kind
        for worker in workers:  # type: ignore[attr-defined]
            if worker in blocked:
                since = blocked.pop(worker)
                ready = max(since, float(delivery.ready[worker]))
                self.waiting[kind][worker] += ready - since
                self._note(ready, worker)
