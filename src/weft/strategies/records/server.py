"""Parameter servers with bounded staleness: weights are dealt out over the ranks, each serves its share.

A worker pushes the gradients of a step to the servers and pulls the weights, over connections of its own to
each. With staleness 0 a server waits for the gradients of all workers and takes one step on their sum: that
is synchronous training. With staleness s it takes a step on each gradient as it comes, and answers a worker
that is more than s steps ahead of the slowest only when that one has caught up.
"""

import threading
from collections.abc import Sequence
from itertools import permutations
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from weft.comm.group import Group
from weft.comm.ledger import Label
from weft.errors import InputError, WorkerLost

_LABEL = Label("parameters")
_PUSH, _STOP = 1.0, 0.0


class Servers:
    """The servers of one epoch and this worker's way to them: a `with` block, in it a `step()` a batch.

    At the end the model and the optimiser of every worker hold what the servers came to.
    """

    def __init__(
        self, model: nn.Module, optimizer: torch.optim.Optimizer, group: Group, staleness: int
    ) -> None:
        self.group, self.optimizer = group, optimizer
        self.parameters = [value for value in model.parameters() if value.requires_grad]
        if len({value.dtype for value in self.parameters}) > 1:
            raise InputError("strategy.staleness: parameters of several types; train without it")
        self.dtype = self.parameters[0].dtype
        self.owner = deal([value.numel() for value in self.parameters], group.size)
        self.shares = [self._share(rank) for rank in range(group.size)]
        self.server = Server(
            self.shares[group.rank],
            optimizer,
            workers=group.size,
            staleness=staleness,
            timeout=group.timeout,
        )
        self.pairs = self._connect()
        """By server and worker; one of them is this rank."""
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> "Servers":
        for (server, worker), pair in self.pairs.items():
            if server == self.group.rank:
                self._threads.append(threading.Thread(target=self._serve, args=(worker, pair), daemon=True))
                self._threads[-1].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        if error is not None:  # the others are told by whoever closes the group
            return
        for rank, pair in self._servers():
            self._send(pair, torch.full((self._size(rank),), _STOP, dtype=self.dtype))
        for thread in self._threads:
            thread.join(self.group.timeout)
        self.server.check()
        self.settle()

    def step(self) -> None:
        """Push the gradients that backward left and pull the weights; then no parameter has a gradient."""
        self.server.check()
        for rank, pair in self._servers():
            self._send(pair, self._packed(rank))
        pulled = {rank: self._begin(pair, self._size(rank)) for rank, pair in self._servers()}
        own = self.group.rank
        _unpack(self.shares[own], self.server.push(own, self._packed(own)))
        for rank, arriving in pulled.items():
            _unpack(self.shares[rank], arriving.wait())
        for parameter in self.parameters:
            parameter.grad = None

    def settle(self) -> None:
        """Give all workers the weights and the optimiser's state of all servers; no step is under way."""
        self.group.barrier()
        for rank, share in enumerate(self.shares):
            size = sum(value.numel() for value in share)
            weights = self.server.weights()
            weights = weights if rank == self.group.rank else weights.new_empty(size)
            if size:
                _unpack(share, self.group.broadcast(weights, rank, label=_LABEL))
        self._settle_state()

    def _settle_state(self) -> None:
        place_of = {id(value): number for number, value in enumerate(self.parameters)}
        own = {place_of[id(value)]: self.server.state_of(value) for value in self.shares[self.group.rank]}
        entries_here = [
            [number, name, list(value.shape), str(value.dtype).removeprefix("torch.")]
            if isinstance(value, Tensor)
            else [number, name, None, value]
            for number, state in own.items()
            for name, value in state.items()
        ]
        for rank, entries in enumerate(self.group.all_gather_json(entries_here)):
            for number, name, shape, rest in entries:
                state = self.optimizer.state[self.parameters[number]]
                if shape is None:
                    state[name] = rest
                    continue
                mine = rank == self.group.rank
                value = own[number][name].clone() if mine else torch.empty(shape, dtype=getattr(torch, rest))
                state[name] = self.group.broadcast(value.contiguous(), rank, label=_LABEL)

    # Underneath

    def _share(self, rank: int) -> list[nn.Parameter]:
        return [value for value, owner in zip(self.parameters, self.owner) if owner == rank]

    def _size(self, rank: int) -> int:
        share = self.shares[rank]
        return sum(value.numel() for value in share) + len(share) + 1

    def _connect(self) -> dict[tuple[int, int], Group]:
        """Return the connections of this rank, made by all ranks in the same order."""
        links = {}
        for server, worker in permutations(range(self.group.size), 2):
            if self.group.rank in (server, worker):
                ends = [self.group.ranks[server], self.group.ranks[worker]]
                links[server, worker] = self.group.subgroup(ends, purpose=f"server {server}")
        return links

    def _servers(self) -> list[tuple[int, Group]]:
        """Return the servers of other ranks, and the way to them."""
        return [(server, pair) for (server, _), pair in self.pairs.items() if server != self.group.rank]

    def _packed(self, rank: int) -> Tensor:
        """Return the gradients of a share in a row, for each parameter whether there is one, and the word."""
        share = self.shares[rank]
        grads = [value.grad for value in share]
        flat = [
            value.new_zeros(value.numel()) if grad is None else grad.reshape(-1)
            for value, grad in zip(share, grads)
        ]
        there = [*(grad is not None for grad in grads), _PUSH]
        return torch.cat([*flat, torch.tensor(there, dtype=self.dtype)]).detach()

    def _send(self, pair: Group, message: Tensor) -> None:
        counts = [0, 0]
        counts[1 - pair.rank] = len(message)
        pair.all_to_all(message, counts, [0, 0], label=_LABEL).wait()

    def _begin(self, pair: Group, size: int) -> Any:
        counts = [0, 0]
        counts[1 - pair.rank] = size
        return pair.all_to_all(torch.empty(0, dtype=self.dtype), [0, 0], counts, label=_LABEL)

    def _serve(self, worker: int, pair: Group) -> None:
        """Answer one worker until it says that the epoch is over."""
        size = self._size(self.group.rank)
        try:
            while True:
                message = self._begin(pair, size).wait()
                if float(message[-1]) == _STOP:
                    return
                weights = self.server.push(worker, message)
                # As long as a message: with one size both ways neither end tells the other how much comes.
                self._send(pair, torch.cat([weights, message.new_zeros(size - len(weights))]))
        except BaseException as error:  # the training thread raises it
            self.server.fail(error)


class Server:
    """A share of the weights with its own optimiser state; threads push to it, one a worker."""

    def __init__(
        self,
        share: Sequence[nn.Parameter],
        optimizer: torch.optim.Optimizer,
        *,
        workers: int,
        staleness: int,
        timeout: float,
    ) -> None:
        self.share, self.staleness, self.timeout = list(share), staleness, timeout
        self.dtype = optimizer.param_groups[0]["params"][0].dtype
        # Copies: this rank computes with its own parameters while other workers' gradients change these.
        self.masters = [nn.Parameter(value.detach().clone()) for value in share]
        self.changed = threading.Condition()
        self.clocks = [0] * workers
        self.version = 0
        self._held: dict[int, Tensor] = {}
        self._failure: BaseException | None = None
        # Each gradient as it comes is a step of its own: together they go as far as one on the sum.
        self.rate = 1.0 if staleness == 0 else 1.0 / workers
        self.optimizer = self._copy(optimizer)

    def push(self, worker: int, message: Tensor) -> Tensor:
        """Take a worker's gradients and return the weights, as soon as it may go on."""
        with self.changed:
            self.clocks[worker] += 1
            mine = self.clocks[worker]
            self._held[worker] = message
            if self.staleness:
                # A gradient is a worker's share of a mean over all; a step of its own takes it for the whole.
                self._apply(self._held.pop(worker) * len(self.clocks))
            elif min(self.clocks) == mine:
                # By rank, not as they came: a sum in another order has other bits.
                self._apply(torch.stack([self._held[each] for each in sorted(self._held)]).sum(0))
                self.version, self._held = mine, {}
            self.changed.notify_all()
            self._wait(lambda: mine - min(self.clocks) <= self.staleness and self._done(mine))
            return self.weights()

    def weights(self) -> Tensor:
        """Return the weights of the share in a row."""
        flat = [value.detach().reshape(-1) for value in self.masters]
        return torch.cat([torch.zeros(0, dtype=self.dtype), *flat])

    def state_of(self, parameter: nn.Parameter) -> dict[str, Any]:
        """Return what the optimiser holds for a parameter of the share."""
        number = next(number for number, value in enumerate(self.share) if value is parameter)
        state = {} if self.optimizer is None else self.optimizer.state.get(self.masters[number], {})
        return {name: value for name, value in state.items() if value is not None}

    def fail(self, error: BaseException) -> None:
        """Have everybody who waits raise."""
        with self.changed:
            self._failure = self._failure or error
            self.changed.notify_all()

    def check(self) -> None:
        """Raise what a thread raised."""
        if self._failure is not None:
            raise self._failure

    def _done(self, clock: int) -> bool:
        return self.staleness > 0 or self.version >= clock

    def _wait(self, ready: Any) -> None:
        if not self.changed.wait_for(lambda: ready() or self._failure is not None, self.timeout):
            late = self.clocks.index(min(self.clocks))
            raise WorkerLost(
                f"worker {late} sent no gradients for {self.timeout:g} s (step {self.clocks[late]})", late
            )
        self.check()

    def _apply(self, message: Tensor) -> None:
        """Take one step; a parameter that no worker has a gradient for stays as it is."""
        count = len(self.masters)
        there = message[-count - 1 : -1].tolist()
        parts = torch.split(message[: -count - 1], [value.numel() for value in self.masters])
        for master, part, gradient in zip(self.masters, parts, there):
            master.grad = part.view_as(master).clone() if gradient else None
        if self.optimizer is not None:
            self.optimizer.step()

    def _copy(self, optimizer: torch.optim.Optimizer) -> torch.optim.Optimizer | None:
        """Return an optimiser like the one given, in the state that it is in, for the share."""
        master_of = {id(value): master for value, master in zip(self.share, self.masters)}
        groups = []
        for group in optimizer.param_groups:
            masters = [master_of[id(value)] for value in group["params"] if id(value) in master_of]
            settings = {name: value for name, value in group.items() if name != "params"}
            settings["lr"] = settings["lr"] * self.rate
            groups += [{"params": masters, **settings}] if masters else []
        if not groups:
            return None
        made = type(optimizer)(groups)  # type: ignore[call-arg]
        for value in self.share:
            state = optimizer.state.get(value, {})
            copied = {
                name: item.clone() if isinstance(item, Tensor) else item for name, item in state.items()
            }
            if copied:
                made.state[master_of[id(value)]] = copied
        return made


def deal(sizes: Sequence[int], ranks: int) -> list[int]:
    """Return the rank that serves each parameter: the largest first, each to whoever has least.

    >>> deal([10, 1, 8, 2], 2)
    [0, 0, 1, 1]
    """
    load, owner = [0] * ranks, [0] * len(sizes)
    for number in sorted(range(len(sizes)), key=lambda number: (-sizes[number], number)):
        owner[number] = load.index(min(load))
        load[owner[number]] += sizes[number]
    return owner


def _unpack(share: Sequence[nn.Parameter], weights: Tensor) -> None:
    with torch.no_grad():
        start = 0
        for value in share:
            value.copy_(weights[start : start + value.numel()].view_as(value))
            start += value.numel()
