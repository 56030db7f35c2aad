"""Training on a device that holds neither the graph nor the activations: both stay in the host's memory.

Layer by layer, chunk by chunk (NeuGraph): the edges of a chunk and the rows it reads are copied to the device
while the chunk before is worked on, and the rows it makes are copied back. Backward runs every chunk again
and sends the gradients of the rows it read home. A layer is run in two halves where it has them, so that what
a node sends is made once, not by every chunk that reads it. What is sent, and its gradient, is held on the
device while the layer runs if there is room (ROC). Exact: every destination has all its edges in one chunk,
and random draws are functions of ids.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from weft.errors import GraphError, InputError
from weft.graph.graph import Graph
from weft.graph.message.block import Block
from weft.kernels import gpu
from weft.kernels.second import first_derivatives_only
from weft.layers.stack import Stack
from weft.samplers.gpu.transfer import Courier, DeviceDegrees
from weft.sizes import shown
from weft.stores.link import reachable
from weft.strategies.offload.backward import Backward, ends_plain
from weft.strategies.offload.blocks import Message
from weft.strategies.offload.chunks import Cost, GraphChunk, cut, cut_plain, cut_rows, edge_bytes
from weft.strategies.offload.halves import Halves, halved
from weft.strategies.offload.rows import Source, Target

_CHUNK = 0.36
"""Of the memory that is left for chunks, what one may take; the next one is on its way then."""
_WHOLE = 0.5
"""Of the memory given, what messages, their gradients and those of one chunk may take: then all are held."""
_NEAR = 0.65
"""Of the memory given, what messages and their gradients may take: then these are held."""
_JOINED = 1 / 3
"""The same for the rows that a layer without halves reads."""
_TRIES = 6
_SMALLER = 0.8
"""What a chunk is made smaller by where it did not fit after all."""
_LIBRARIES = 48 << 20
"""What matrix products take on a GPU for themselves, and some blocks that are not whole."""
T = TypeVar("T")


@dataclass(frozen=True)
class LayerPlan:
    """How the layers of a model are run."""

    messages: list[list[Message]] | None
    """What a node sends in each layer; None: layers have no halves, and each chunk makes what it reads."""
    near: bool
    """Whether what chunks read is held on the device."""
    whole: bool
    """Whether chunks read it there by the numbers of nodes, not by a list of their own."""
    resident: int
    """The bytes held on the device."""
    cost: Cost

    @staticmethod
    def of(offload: "Offload", model: Stack, memory: int) -> "LayerPlan":
        """Return the plan for so much memory; the model lies where `offload` runs it."""
        found = [halved(offload, model, number) for number in range(len(model.layers))]
        messages = [each for each in found if each is not None]
        graph = offload.graph
        cost = cost_of(model, graph)
        if len(messages) < len(found):
            held = 2 * graph.num_nodes * size_of(model) * max(widths_of(model))
            near = held <= _JOINED * memory and _fits(memory - held, largest(graph, cost))
            return LayerPlan(None, near, False, held if near else 0, cost)
        width = max(sum(message.nbytes for message in layer) for layer in messages)
        held, cost = graph.num_nodes * width, Cost(3 * width + 64, cost.row, cost.edge)
        alone = cost.without_sources
        if 3 * held <= _WHOLE * memory and _fits(memory - 3 * held, largest(graph, alone)):
            return LayerPlan(messages, True, True, 3 * held, alone)
        near = 2 * held <= _NEAR * memory and _fits(memory - 2 * held, largest(graph, cost))
        return LayerPlan(messages, near, False, 2 * held if near else 0, cost)


def _fits(left: int, chunk: int) -> bool:
    return left * _CHUNK >= chunk


def largest(graph: Graph, cost: Cost) -> int:
    """Return what the node with most edges takes, which is the least that a chunk can be."""
    degree = int(graph.indptr.diff().max()) if graph.num_nodes else 0
    return cost(min(degree + 1, graph.num_nodes), 1, degree)


class Offload:
    """A model over a whole graph in bounded memory of a device: `offload(model)` is [num_nodes, classes].

    The result lies in the host's memory, and so do the rows between layers. `memory` is in bytes, beside what
    lies on the device before; `moved` counts those that went between host and device.
    """

    def __init__(
        self,
        graph: Graph,
        device: torch.device,
        *,
        memory: int,
        clock: Tensor | None = None,
        autocast: torch.dtype | None = None,
    ) -> None:
        if graph.device.type != "cpu":
            raise GraphError(f"offload keeps the graph in the host's memory, this one lies on {graph.device}")
        self.graph, self.device, self.memory = graph, device, memory
        self.clock, self.autocast = clock, autocast
        self.degrees = DeviceDegrees(graph, device)
        self.courier = Courier(device, graph) if device.type == "cuda" else None
        self.direct = device.type == "cuda" and gpu.available()
        """Whether the device reads and adds rows in the host's memory by itself."""
        x = graph.x
        self.x = reachable(x) if self.direct and isinstance(x, Tensor) else x
        self.moved = 0
        self._share = _CHUNK
        self._plan: LayerPlan | None = None
        self._cut: tuple[Any, list[GraphChunk]] | None = None

    def __call__(self, model: nn.Module) -> Tensor:
        """Return the outputs of all nodes; differentiable in the model's parameters."""
        layers = checked(model)
        params = [each for each in model.parameters() if each.requires_grad]
        if torch.is_grad_enabled() and params:
            out: Tensor = _Run.apply(self, layers, *params)  # type: ignore[no-untyped-call]
            return out
        return self.forward(layers)[-1]

    def plan(self, model: Stack) -> LayerPlan:
        """Return how the layers are run; found anew for each forward pass."""
        if self._plan is None:
            self._plan = LayerPlan.of(self, model, self.memory)
        return self._plan

    @property
    def near(self) -> bool:
        """Whether what chunks read is held on the device."""
        assert self._plan is not None, "a pass begins with a plan"
        return self._plan.near

    def chunks(self, model: Stack) -> list[GraphChunk]:
        """Return the chunks in which the widest layer fits; kept."""
        plan = self.plan(model)
        budget = int((self.memory - plan.resident) * self._share)
        key = (plan.cost, plan.whole, budget)
        if self._cut is None or self._cut[0] != key:
            self._cut = None
            made = (cut_rows if plan.whole else cut)(self.graph, plan.cost, budget)
            pinned = self.device.type == "cuda"
            self._cut = (key, [chunk.pinned() if pinned else chunk for chunk in made])
        return self._cut[1]

    def stretches(self, model: Stack) -> list[GraphChunk]:
        """Return chunks of rows alone, in which nodes make what they send."""
        plan = self.plan(model)
        length = max(1, int((self.memory - plan.resident) * self._share) // plan.cost.row)
        return list(cut_plain(self.graph, length))

    def halves(self, model: Stack, number: int) -> Halves | None:
        """Return a layer in its halves; None where it has none."""
        messages = self.plan(model).messages
        return None if messages is None else Halves(self, model, number, messages[number])

    def forward(self, model: Stack) -> list[Tensor]:
        """Return the rows after every layer, and last the outputs, in the host's memory."""
        self._plan = None
        with torch.no_grad(), self._bounded():
            return self._again(lambda: self._forward(model))

    def backward(self, model: Stack, rows: Sequence[Tensor], grad: Tensor) -> list[Tensor | None]:
        """Return the gradients of the parameters, from what `forward` gave and that of the outputs."""
        grad = self.host(grad.shape, grad.dtype).copy_(grad)
        with self._bounded():
            return self._again(lambda: Backward(self, model, rows).run(grad))

    # What a pass is made of

    def _forward(self, model: Stack) -> list[Tensor]:
        held: list[Tensor] = []
        for number in range(len(model.layers)):
            before, out = held[-1] if held else None, Target(self)
            halves = self.halves(model, number)
            if halves is not None:
                halves.forward(before, out)
            else:
                for chunk, block, rows in self.visit(model, self.source(before)):
                    with self.cast():
                        out.put(chunk, model.run_layer(number, [block], rows))
            held.append(out.finish())
        if not ends_plain(model):
            out = Target(self)
            for chunk in self.chunks(model):
                with self.cast():
                    out.put(chunk, model.finish([self.bring(each[chunk.rows]) for each in held]))
            held.append(out.finish())
        return held

    def source(self, rows: Tensor | None) -> Source:
        """Return the rows that a layer without halves reads, on the device where they are held there."""
        held = self.x if rows is None else rows
        near = self.near and isinstance(held, Tensor)
        return Source(self, self.bring(held) if near else rows)

    def visit(self, model: Stack, source: Source) -> Iterator[tuple[GraphChunk, Block, Any]]:
        """Give each chunk with its block and the rows it reads on the device; the next is on its way."""

        def make(chunk: GraphChunk) -> tuple[GraphChunk, Block, Any]:
            self.moved += chunk.nbytes(self.graph)
            block = chunk.block(self.graph, self.device, self.degrees, self.clock)
            return chunk, block, source.rows(chunk, block)

        yield from self.ahead(make, self.chunks(model))

    def bring(self, rows: Tensor) -> Tensor:
        """Return rows of the host on the device."""
        self.moved += rows.nbytes
        return rows.to(self.device, non_blocking=True)

    def cast(self) -> Any:
        """Return the autocast of the run."""
        return torch.autocast(self.device.type, dtype=self.autocast, enabled=self.autocast is not None)

    def host(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return memory of the host that the device copies from and to."""
        return torch.empty(tuple(shape), dtype=dtype, pin_memory=self.device.type == "cuda")

    def ahead(self, make: Callable[[GraphChunk], T], chunks: Sequence[GraphChunk]) -> Iterator[T]:
        """Give what `make` makes of each chunk, the next one on its way while one is worked on."""
        courier = self.courier
        if courier is None:
            yield from map(make, chunks)
            return
        before = torch.cuda.current_stream(self.device).record_event()

        def prepared(chunk: GraphChunk) -> Any:
            def run() -> T:
                # what chunks read from was made on the caller's stream
                torch.cuda.current_stream(self.device).wait_event(before)
                return make(chunk)

            return courier.prepare(run)

        with ThreadPoolExecutor(1, thread_name_prefix="weft-offload") as pool:
            started = [pool.submit(prepared, chunk) for chunk in chunks[:1]]
            for chunk in [*chunks[1:], None]:
                parcel = started.pop().result()
                if chunk is not None:
                    started.append(pool.submit(prepared, chunk))
                yield courier.open(parcel)
                del parcel

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Have the allocator of the device refuse more than the memory given and what it holds already."""
        if self.device.type != "cuda":
            yield
            return
        place = torch.cuda.current_device() if self.device.index is None else self.device.index
        total = torch.cuda.get_device_properties(place).total_memory
        torch.cuda.empty_cache()  # blocks of other sizes, left by the pass before, would only be in the way
        before = torch.cuda.get_per_process_memory_fraction(place)
        # the allocator counts all of the process: parameters, captured steps, features that lie there
        limit = (torch.cuda.memory_reserved(place) + self.memory) / total
        torch.cuda.set_per_process_memory_fraction(min(before, limit), place)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(before, place)

    def _again(self, run: Callable[[], T]) -> T:
        """Return what a pass gives; where its chunks did not fit after all it is made in smaller ones."""
        for left in reversed(range(_TRIES)):
            try:
                return run()
            except torch.OutOfMemoryError:
                if not left:
                    break
            self._share *= _SMALLER
            torch.cuda.empty_cache()
        raise InputError(
            f"strategy.memory: {shown(self.memory)} do not suffice, in chunks of "
            f"{shown(self.memory * self._share)} neither; give more, or a narrower model"
        )


class _Run(torch.autograd.Function):
    """The model as one operation: what is kept for backward are the rows between layers, on the host."""

    @staticmethod
    def forward(ctx: Any, offload: Offload, model: Stack, *params: Tensor) -> Tensor:
        rows = offload.forward(model)
        ctx.offload, ctx.model, ctx.rows = offload, model, rows
        return rows[-1].clone() if ends_plain(model) else rows[-1]

    @staticmethod
    @first_derivatives_only("activation 'offload'", "need activation = 'keep'")
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        totals = ctx.offload.backward(ctx.model, ctx.rows, grad)
        ctx.rows = None
        return None, None, *totals


def checked(model: nn.Module) -> Stack:
    """Return the model, or say why it cannot be run layer by layer and chunk by chunk."""
    reason = obstacle_of(model)
    if reason:
        raise InputError(f"activation 'offload': {reason}")
    assert isinstance(model, Stack)
    return model


def obstacle_of(model: nn.Module) -> str:
    """Return why a model cannot be run layer by layer and chunk by chunk, or nothing."""
    if not isinstance(model, Stack):
        return f"layers are run one by one: expected a weft.nn.Stack, got {type(model).__name__}"
    for layer in model.layers:
        if layer.hops != 1:
            return f"{type(layer).__name__} takes {layer.hops} hops at once; use activation = 'keep'"
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats):
            return f"{name} normalises over all nodes, a chunk holds some; use norm = 'layer'"
    return ""


def least_bytes(offload: Offload, model: Stack) -> int:
    """Return the memory of a device in which the node with most edges fits, one way or the other."""
    graph, plan = offload.graph, LayerPlan.of(offload, model, memory=1)  # which holds nothing there
    far = largest(graph, plan.cost) / _CHUNK
    if plan.messages is None:
        return int(far)
    held = 3 * graph.num_nodes * max(sum(each.nbytes for each in layer) for layer in plan.messages)
    whole = held + largest(graph, plan.cost.without_sources) / _CHUNK
    return int(min(far, max(whole, held / _WHOLE)))


def needed_bytes(offload: Offload, model: Stack, device: torch.device) -> int:
    """Return the memory that training takes at least: of chunks and, on a GPU, of libraries and weights."""
    chunks = least_bytes(offload, model)
    if device.type != "cuda":
        return chunks
    return chunks + _LIBRARIES + 4 * sum(each.nbytes for each in model.parameters())


def widths_of(model: Stack) -> tuple[int, int]:
    """Return the width of the widest input of a layer, and of the widest output."""
    layers: Any = model.layers
    widths = [(layer.in_features, layer.out_width) for layer in layers]
    most_in, most_out = (max(column) for column in zip(*widths))
    return most_in, most_out


def size_of(model: nn.Module) -> int:
    """Return the bytes of a number of the model."""
    return next((each.element_size() for each in model.parameters()), 4)


def cost_of(model: Stack, graph: Graph) -> Cost:
    """Return what the widest layer takes: inputs, what is made of them, and the gradients of both."""
    most_in, most_out = widths_of(model)
    pairs = 4 if graph.num_relations > 1 else 1  # rows of (relation, source) pairs are several of a source
    size = size_of(model)
    source = size * (2 * most_in + 3 * pairs * most_out) + 64
    layers: Any = model.layers
    edge = 48 + edge_bytes(graph) + 3 * size * max(layer.edge_width for layer in layers)
    return Cost(source, size * (3 * most_in + 6 * most_out) + 64, edge)
