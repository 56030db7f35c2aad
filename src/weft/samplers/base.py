"""What a sampler is, and the batch that it gives."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from weft.draw import Stream, fold
from weft.errors import GraphError, InputError
from weft.graph.ends import mirrored
from weft.graph.message.block import Block
from weft.graph.views import GraphView
from weft.kernels import gpu
from weft.registry import Registry
from weft.samplers.core.slices import node_rows

samplers: Registry[type["Sampler"]] = Registry("sampler", "weft.samplers")

Resample = Literal["epoch", "step"]


class Batch:
    """Blocks for one step of training: `model(batch.blocks, batch.x)` gives one row per seed.

    `blocks[0]` is what the first layer is given, `blocks[-1]` ends in the seeds. `nodes` [n] are the rows of
    `x`, seeds first.
    """

    every: Block | None = None
    """All edges into the rows that something is drawn for, where only some are in `blocks` and `nodes` has
    the sources of all."""

    def __init__(
        self,
        graph: GraphView,
        blocks: list[Block],
        nodes: Tensor,
        *,
        num_seeds: int,
        epoch: int = 0,
        step: int = 0,
        seed_of: Tensor | None = None,
        once: "Callable[[], Batch] | None" = None,
        hop_sizes: tuple[list[int], list[int]] | None = None,
        data: Mapping[str, Any] | None = None,
    ) -> None:
        self.graph = graph
        self.blocks = blocks
        self.nodes = nodes  # [n] int64
        self.seeds = nodes[:num_seeds]  # [s] int64
        self.epoch, self.step = epoch, step
        self.seed_of = seed_of  # [n] place of the seed a row belongs to, where rows are (seed, node) pairs
        self.hop_sizes = hop_sizes  # nodes and edges of each hop, where each node was drawn for once
        self._once = once
        self._data: dict[str, Any] = {} if data is None else dict(data)  # x and y, where they are there

    @property
    def num_nodes(self) -> int:
        """The rows of x."""
        return self.nodes.numel()

    @property
    def num_edges(self) -> int:
        """The edges of all blocks."""
        return sum(block.num_edges for block in self.blocks)

    @property
    def num_targets(self) -> int:
        """What is asked for: the seeds."""
        return self.seeds.numel()

    @property
    def device(self) -> torch.device:
        """Where the batch lies."""
        return self.nodes.device

    @property
    def x(self) -> Any:
        """The features of the nodes; by node type where there are several."""
        return self._get("x", lambda: node_rows(self.graph, self.nodes))

    @property
    def y(self) -> Tensor | None:
        """What is known of the seeds; None where the graph has no y."""
        y: Tensor | None = self._get("y", lambda: self.graph.known_of(self.seeds))
        return y

    def fetch(self, *, pin: bool = False) -> "Batch":
        """Do now, as a loader's thread does, what a step of training would wait for; return the batch.

        With `pin` features are read into pinned memory, from where a GPU copies them.
        """
        self._get("x", lambda: node_rows(self.graph, self.nodes, pin=pin))
        _ = self.y
        if self.nodes.is_cpu:  # a GPU makes them at once, and only where a layer asks
            for block in self.blocks:
                block.mean_scale()
        for block in self.blocks:
            gpu.look_at(block.indptr, block.num_edges)
        for block in self.blocks[1:]:  # features need no gradient: the first block has no backward
            gpu.look_at(block.transposed.indptr, block.num_edges)
        return self

    def without_y(self) -> "Batch":
        """Ask for no y, as where seeds are of types that have none; return the batch."""
        self._data["y"] = None
        return self

    def set_clock(self, clock: Tensor | None) -> None:
        """Give all blocks the (seed, epoch, step) that dropout is drawn by."""
        for block in self.blocks:
            block.clock = clock

    def moved(self, move: Callable[[Any], Any], graph: Any, carry: "Callable[[Batch], Batch]") -> "Batch":
        """Return a copy whose tensors and blocks went through `move`, of a graph that lies there.

        `carry` moves the batch that `to_pyg` makes, once it is asked for.
        """
        once, made = self._once, copy(self)
        for name, value in vars(self).items():
            setattr(made, name, move(value))
        made.graph = graph
        made._once = None if once is None else lambda: carry(once())
        return made

    def brings(self, name: str) -> bool:
        """Return whether `x` or `y` is here already, and not to be read from the graph."""
        return name in self._data

    def to_pyg(self) -> Any:
        """Return a PyG `Data` (or `HeteroData`) of the seeds' neighbourhood, each node drawn for once.

        It has x, y, edge_index, batch_size, n_id, e_id and, for `trim_to_layer`, num_sampled_nodes and
        num_sampled_edges.
        """
        from weft.interop.pyg.batch import data_of

        if self.hop_sizes is not None:
            return data_of(self)
        if self._once is None:
            raise InputError("this batch is no neighbourhood: to_pyg() needs one of a NeighborSampler")
        return data_of(self._once())

    def _get(self, name: str, make: Callable[[], Any]) -> Any:
        if name not in self._data:
            self._data[name] = make()
        return self._data[name]

    def __repr__(self) -> str:
        counts = f"seeds={self.seeds.numel():,}, nodes={self.num_nodes:,}, edges={self.num_edges:,}"
        return f"Batch({counts}, blocks={len(self.blocks)})"


class Sampler(ABC):
    """A way of making batches of a graph. The same (seed, epoch, step, seeds) give the same batch, anywhere.

    Draws are keyed by nodes, so within an epoch a node has the same sample in every batch: fewer distinct
    rows are read. `resample="step"` draws anew in each step.
    """

    neighbourhoods: ClassVar[bool] = True
    """Whether a batch is the neighbourhood of its seeds; else a subgraph that the sampler chooses."""
    devices: ClassVar[tuple[str, ...]] = ("cpu",)
    """Where it draws: where the edges lie."""
    on_workers: ClassVar[bool] = False
    """Whether the owner of a node can draw for it, for all workers: it is an `OwnerDrawing` then."""
    by_time: ClassVar[bool] = False
    """Whether a seed can see the edges up to its time alone: the option `temporal`."""
    hides: ClassVar[bool] = False
    """Whether a batch can be that of a graph without some edges: `sample(..., hidden=)`."""
    together: ClassVar[bool] = False
    """Whether all workers draw a batch together, each its own share of it."""

    def __init__(self, graph: GraphView, *, seed: int = 0, resample: Resample = "epoch") -> None:
        if resample not in ("epoch", "step"):
            raise InputError(f"resample must be 'epoch' or 'step', got {resample!r}")
        device = graph.indptr.device
        if device.type != "cpu" and self.devices == ("cpu",):
            raise GraphError(
                f"the graph lies on {device}, but {type(self).__name__} draws on the CPU: "
                "graph.to(device='cpu')"
            )
        self.graph = graph
        self.seed = seed
        self.resample = resample

    @property
    def plain(self) -> bool:
        """Whether each row has at most its fanout of edges, which stand for equally many, and no type."""
        return False

    def gpu_obstacle(self) -> str:
        """Return why a GPU cannot draw as this sampler does, or nothing."""
        return "" if "cuda" in self.devices else f"{type(self).__name__} draws on the CPU"

    @property
    def drawn_by(self) -> Any:
        """What draws the edges of a row: itself, or what the owner of a node draws by."""
        return self

    def owns(self, nodes: Tensor) -> Tensor | None:
        """Return which of some nodes this worker is to have in its share, [n] bool; None: all."""
        return None

    def moments(self, times: Tensor) -> Tensor:
        """Return times by which seeds see as much as by the given ones: these, or fewer different ones."""
        return times

    def mirrored(self) -> Tensor:
        """Return of each relation whether all its edges have one the other way, [R] bool; all call it."""
        edges: Any = self.graph
        return mirrored(edges)

    @abstractmethod
    def sample(self, seeds: Any, epoch: int = 0, step: int = 0) -> Batch:
        """Return the batch of these nodes, given by global id."""

    def key(self, epoch: int, step: int, layer: int) -> int:
        """Return the key of the draws of one moment and hop; the step is left out unless it resamples."""
        return fold(self.seed, Stream.SAMPLE, epoch, step if self.resample == "step" else 0, layer)


def as_seeds(graph: GraphView, seeds: Any) -> Tensor:
    """Return seeds as [n] int64, or say what is wrong with them; those of several types sorted by type."""
    try:
        ids = torch.as_tensor(seeds)
    except (TypeError, ValueError, RuntimeError):
        raise GraphError(f"expected seeds [n] of node ids, got {str(seeds)[:60]}") from None
    if ids.numel() == 0:
        return torch.zeros(0, dtype=torch.int64)
    if ids.dim() != 1 or ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise GraphError(f"expected seeds [n] of node ids, got {ids.dtype} of shape {list(ids.shape)}")
    ids = ids.to("cpu", torch.int64).contiguous()
    if len(graph.node_types) > 1:
        kinds = torch.bucketize(ids, torch.tensor(graph.node_offsets[1:-1]), right=True)
        if bool((kinds[1:] < kinds[:-1]).any()):
            raise GraphError("seeds of several node types must be sorted by type; use torch.sort(seeds)")
    return ids
