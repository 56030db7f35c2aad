"""Batches on their way to a GPU: prepared by threads, copied on streams of their own, beside the work there.

What lies on the CPU goes through pinned memory, so that the copy needs no thread and no step waits for it.
What is made on the GPU itself, the draws of a graph that lies there, runs on these streams too.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, Literal, TypeVar

import torch
from torch import Tensor

from weft.errors import InputError
from weft.graph.graph import Graph
from weft.graph.message.block import Block, DegreeSource
from weft.graph.node_pairs import Pairs
from weft.graph.sparse import SparseFeatures
from weft.kernels import gpu
from weft.samplers.base import Batch
from weft.samplers.core.hidden import Hidden, replaced

T = TypeVar("T")
_IN_USE = 2
"""Steps that may be waiting on the GPU: more would only hold the memory of more batches."""


@dataclass(frozen=True)
class Parcel(Generic[T]):
    """Something made on another stream, and when it is there."""

    value: T
    ready: torch.cuda.Event


class Courier:
    """Brings batches to a device. `near` has the node data there, where they are not to travel."""

    def __init__(self, device: torch.device | str, graph: Graph, near: Graph | None = None) -> None:
        self.device = torch.device(device)
        self.near = near
        self.degrees = DeviceDegrees(graph, self.device)
        self._streams: list[torch.cuda.Stream] = []  # those that no thread is using
        self._begun: deque[torch.cuda.Event] = deque()

    def prepare(self, make: Callable[[], T]) -> Parcel[T]:
        """Return what `make` makes on a stream of its own, called by the thread that prepares it."""
        stream = self._stream()
        with torch.cuda.stream(stream):
            value = make()
            ready = stream.record_event()
        self._streams.append(stream)
        return Parcel(value, ready)

    def open(self, parcel: Parcel[T]) -> T:
        """Return what was prepared; the caller's stream waits until it is there, the caller does not."""
        stream = torch.cuda.current_stream(self.device)
        if len(self._begun) == _IN_USE:
            self._begun.popleft().synchronize()
        self._begun.append(stream.record_event())
        stream.wait_event(parcel.ready)
        for tensor in tensors_of(parcel.value):
            if tensor.is_cuda:
                tensor.record_stream(stream)
        return parcel.value

    def _stream(self) -> torch.cuda.Stream:
        try:
            return self._streams.pop()
        except IndexError:  # of an empty list, which another thread may have emptied just now
            return new_stream(self.device)

    def carry(self, batch: Batch) -> Batch:
        """Return a batch of the CPU on the device."""
        if self.near is None:
            batch.fetch(pin=self.device.type == "cuda")
        graph = batch.graph if self.near is None else self.near
        return batch.moved(Mover(self.device, self.degrees), graph, self.carry)

    def moved(self, value: Any) -> Any:
        """Return tensors, pairs, and containers of them on the device."""
        return Mover(self.device, self.degrees)(value)


class Mover:
    """Copies tensors, and blocks and containers of them, to a device; what is shared stays shared."""

    def __init__(self, device: torch.device, degrees: "DeviceDegrees") -> None:
        self.device, self.degrees = device, degrees
        self._moved: dict[int, tuple[Any, Any]] = {}  # with the original, which keeps its id its own

    def __call__(self, value: Any) -> Any:
        """Return the value on the device."""
        if isinstance(value, dict):
            return {name: self(each) for name, each in value.items()}
        if isinstance(value, list):
            return [self(each) for each in value]
        if isinstance(value, tuple):
            moved = [self(each) for each in value]
            return type(value)(*moved) if hasattr(value, "_fields") else tuple(moved)
        if isinstance(value, Pairs):
            return replace(value, **{item.name: self(getattr(value, item.name)) for item in fields(value)})
        if not isinstance(value, Tensor | SparseFeatures | Block | Hidden):
            return value
        if id(value) not in self._moved:
            self._moved[id(value)] = (value, self._move(value))
        return self._moved[id(value)][1]

    def _move(self, value: Any) -> Any:
        if isinstance(value, Block):
            return self._block(value)
        if isinstance(value, Hidden):
            return DeviceHidden(value, self.degrees)
        if isinstance(value, SparseFeatures):
            return value.to(self.device)
        if self.device.type == "cuda" and not value.is_pinned():
            value = value.pin_memory()
        return value.to(self.device, non_blocking=True)

    def _block(self, block: Block) -> Block:
        if block.by_time:
            raise InputError("batches by time stay on the CPU; leave out the loader's device")

        def begun(made: Block) -> None:
            self._moved[id(block)] = (block, made)

        made, degrees = block.moved(self, begun), block.degree_source
        if degrees is self.degrees.graph:
            made.degree_source = self.degrees
        elif isinstance(degrees, Hidden):
            made.degree_source = self(degrees)
        elif degrees is not None:
            made.degree_source = DeviceDegrees(degrees, self.device)
        return made


class DeviceDegrees:
    """The degrees of a graph's nodes on a device, copied when first asked for."""

    def __init__(self, graph: DegreeSource, device: torch.device) -> None:
        self.graph, self.device = graph, device
        self._held: dict[tuple[str, int | None, bool], Tensor] = {}

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return the edges into or out of every node: their number, or summed weight."""
        key = (direction, relation, weighted)
        if key not in self._held:
            self._held[key] = self.graph.degree(direction, relation, weighted).to(self.device)
        return self._held[key]


class DeviceHidden:
    """The degrees of a graph's nodes on a device without hidden edges: few travel, the others are there."""

    def __init__(self, hidden: Hidden, whole: DeviceDegrees) -> None:
        self.hidden, self.whole = hidden, whole
        self._held: dict[tuple[str, int | None, bool], Tensor] = {}

    def degree(self, direction: Literal["in", "out"], relation: int | None, weighted: bool) -> Tensor:
        """Return the degrees of all nodes without these edges, to be asked for by id."""
        key = (direction, relation, weighted)
        if key not in self._held:
            nodes, left = self.hidden.left(*key)
            device, whole = self.whole.device, self.whole.degree(*key)
            self._held[key] = replaced(whole, nodes.to(device), left.to(device, whole.dtype))
        return self._held[key]

    def degree_in_relations(self, nodes: Tensor, relation: Tensor) -> Tensor:
        """Return how many edges into each node are left that are of the relation beside it, [n]."""
        return self.hidden.degree_in_relations(nodes, relation).to(self.whole.device)


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """Return a stream of a GPU beside the one that steps run on."""
    # Batches are made in many small kernels, which are not to wait behind all of a step.
    return torch.cuda.Stream(device, priority=-1)  # type: ignore[no-untyped-call]


def tensors_of(value: Any) -> Iterator[Tensor]:
    """Give the tensors of a batch, of a block, or in containers of them, and what lives as long as these."""
    if isinstance(value, Tensor):
        yield value
        yield from gpu.kept_with(value)
    elif isinstance(value, SparseFeatures):
        yield from tensors_of((value.indptr, value.indices, value.values))
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from tensors_of(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from tensors_of(each)
    elif isinstance(value, Block):
        others = value.looked_up | value.derived_from
        yield from tensors_of([each for name, each in vars(value).items() if name not in others])
    elif isinstance(value, Batch | Pairs) or is_dataclass(value):
        yield from tensors_of(list(vars(value).values()))
