"""Training on a device that holds neither the graph nor the activations: both stay in the host's memory.

Layer by layer, chunk by chunk (NeuGraph): the edges of a chunk and the rows it reads are copied to the device
while the chunk before is worked on, and the rows it makes are copied back. Backward runs every chunk again
and sends the gradients of the rows it read home. A matrix that is small against the memory given, the rows
that a layer reads or their gradients, is held on the device while that layer runs (ROC). Exact: every
destination has all its edges in one chunk, and random draws are functions of ids.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from weft.errors import GraphError, InputError
from weft.graph.block import Block
from weft.graph.graph import Graph
from weft.kernels import gpu
from weft.layers.stack import Stack
from weft.samplers.transfer import Courier, DeviceDegrees
from weft.stores.link import reachable
from weft.strategies.chunks import Chunk, Cost, cut, shown
from weft.strategies.offload_backward import Backward, ends_plain
from weft.strategies.offload_rows import Source, Target

_CHUNK = 0.45
"""Of the memory given, what one chunk may take while it is worked on; the next one is on its way then."""
_RESIDENT = 1 / 6
"""Of the memory given, what the rows that a layer reads, and again their gradients, may take to be held."""
_TRIES = 6
_SMALLER = 0.8
"""What a chunk is made smaller by where it did not fit after all."""
T = TypeVar("T")


class Offload:
    """A model over a whole graph in bounded memory of a device: `offload(model)` is [num_nodes, classes].

    The result lies in the host's memory, and so do the rows between layers. `memory` is in bytes; `moved`
    counts those that went between host and device.
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
        self._cut: tuple[tuple[Cost, float], list[Chunk]] | None = None

    def __call__(self, model: nn.Module) -> Tensor:
        """Return the outputs of all nodes; differentiable in the model's parameters."""
        layers = checked(model)
        params = [each for each in model.parameters() if each.requires_grad]
        if torch.is_grad_enabled() and params:
            out: Tensor = _Run.apply(self, layers, *params)  # type: ignore[no-untyped-call]
            return out
        return self.forward(layers)[-1]

    def chunks(self, model: Stack) -> list[Chunk]:
        """Return the chunks in which the widest layer fits; kept."""
        cost = cost_of(model, self.graph.num_relations)
        if self._cut is None or self._cut[0] != (cost, self._share):
            made = list(cut(self.graph, cost, int(self.memory * self._share)))
            pinned = self.device.type == "cuda"
            self._cut = ((cost, self._share), [chunk.pinned() for chunk in made] if pinned else made)
        return self._cut[1]

    def forward(self, model: Stack) -> list[Tensor]:
        """Return the rows after every layer, and last the outputs, in the host's memory."""
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
            source = Source(self, held[-1] if held else None)
            out = Target(self)
            for chunk, block, rows in self.visit(model, source):
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

    def visit(self, model: Stack, source: Source) -> Iterator[tuple[Chunk, Block, Any]]:
        """Give each chunk with its block and the rows it reads on the device; the next is on its way."""

        def make(chunk: Chunk) -> tuple[Chunk, Block, Any]:
            self.moved += chunk.nbytes
            block = chunk.block(self.graph, self.device, self.degrees, self.clock)
            return chunk, block, source.rows(chunk, block)

        for made in self._ahead(make, self.chunks(model)):
            yield made
            del made

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

    def small(self, nbytes: int) -> bool:
        """Return whether a matrix is held on the device while a layer runs."""
        return nbytes <= self.memory * _RESIDENT

    def _ahead(self, make: Callable[[Chunk], T], chunks: Sequence[Chunk]) -> Iterator[T]:
        courier = self.courier
        if courier is None:
            yield from map(make, chunks)
            return
        with ThreadPoolExecutor(1, thread_name_prefix="weft-offload") as pool:
            started = [pool.submit(courier.prepare, lambda chunk=chunk: make(chunk)) for chunk in chunks[:1]]
            for chunk in [*chunks[1:], None]:
                parcel = started.pop().result()
                if chunk is not None:
                    started.append(pool.submit(courier.prepare, lambda chunk=chunk: make(chunk)))
                yield courier.open(parcel)
                del parcel

    @contextmanager
    def _bounded(self) -> Iterator[None]:
        """Have the allocator of the device refuse more than the memory given."""
        if self.device.type != "cuda":
            yield
            return
        place = torch.cuda.current_device() if self.device.index is None else self.device.index
        total = torch.cuda.get_device_properties(place).total_memory
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(min(1.0, self.memory / total), place)
        try:
            yield
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0, place)

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
    @once_differentiable  # type: ignore[untyped-decorator]
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
            return f"{type(layer).__name__} takes {layer.hops} hops at once"
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or not module.track_running_stats):
            return f"{name} normalises over all nodes, a chunk holds some; use norm = 'layer'"
    return ""


def cost_of(model: Stack, relations: int) -> Cost:
    """Return what the widest layer takes: inputs, what is made of them, and the gradients of both."""
    layers: Any = model.layers
    widths = [(layer.in_features, layer.out_width) for layer in layers]
    most_in, most_out = (max(column) for column in zip(*widths))
    pairs = 4 if relations > 1 else 1  # rows of (relation, source) pairs are several of a source
    source = 4 * (2 * most_in + 3 * pairs * most_out) + 64
    return Cost(source, 4 * (3 * most_in + 6 * most_out) + 64, 48)
