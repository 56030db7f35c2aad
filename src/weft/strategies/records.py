"""GraphTrainer: training from flattened neighbourhoods, which workers read as files, each its own.

`weft flatten` drew and joined the neighbourhood of every training node once; a step reads records, puts what
they share in one place and runs the model. No sampler and no partition is needed for it. The graph itself is
read for features that the records only refer to, for degrees, and for the exact evaluation.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from weft.config import Range
from weft.errors import GraphError, RecipeError
from weft.format import read_directory
from weft.graph.graph import Graph
from weft.samplers.loader import Loader
from weft.strategies.base import strategies
from weft.strategies.distributed import GivenToRanks
from weft.strategies.fanouts import Hops
from weft.strategies.local import LocalGraph
from weft.strategies.records_loader import RecordFiles, RecordLoader
from weft.strategies.records_server import Servers
from weft.strategies.sampled import Sampled
from weft.strategies.single import known_hops

# Steps after which workers that run apart meet to see whether the run is to be saved or left.
MEET = 50


@strategies.add("records")
class RecordTraining(Sampled):
    """Train on records of `weft flatten`; `records` is their folder.

    `batch_size` counts the records of all workers together; each reads its own share of the files, with
    `prepare` threads ahead of training, and shuffles in windows of `buffer` records. The neighbourhood of a
    node is the same in every epoch. The first epoch of one worker is that of `sampled` with the same seed and
    fanout, where all records fit in the buffer. `evaluate` is exact, or a fanout for each hop.

    Workers sum their gradients in each step. With `staleness` they push them to parameter servers, which are
    the workers themselves, and no worker is more than so many steps ahead of another; 0 is synchronous.
    Beyond 0 runs depend on who is faster, and are not continued bit for bit.
    """

    name: ClassVar[str] = "records"

    def __init__(
        self,
        graph: Graph | LocalGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        records: str = "",
        batch_size: Annotated[int, Range(least=1)] = 1024,
        buffer: Annotated[int, Range(least=1)] = 16384,
        evaluate: Literal["exact"] | Sequence[int] = "exact",
        prepare: Annotated[int, Range(least=0)] = 2,
        staleness: Annotated[int, Range(least=0)] | None = None,
        **given: Unpack[GivenToRanks],
    ) -> None:
        self.files = RecordFiles.open(records)
        self.staleness = staleness
        self._servers: Servers | None = None
        group = given.get("group")
        if staleness is not None and (group is None or group.size == 1):
            raise RecipeError(
                "strategy.staleness: one process has nobody to be ahead of; leave it out, or add --workers N"
            )
        super().__init__(
            graph, part_rank=part_rank, partitioner=partitioner, parts=parts, fanout=self.files.fanout,
            batch_size=batch_size, evaluate=evaluate, prepare=prepare, **given,
        )  # fmt: skip
        self.buffer = buffer
        self.source = graph if isinstance(graph, Graph) else self._mapped(graph)
        self.files.check(self.source, self.counts["train"])

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse a folder that holds no records, before any data is read."""
        if not options.get("records"):
            raise RecipeError(
                "strategy.records: expected the folder that `weft flatten GRAPH --out DIR` wrote"
            )
        RecordFiles.open(options["records"])
        super().check(options)

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of other hops than the records have, and what servers cannot do."""
        hops, held = known_hops(model), len(self.files.fanout)
        if hops not in (None, held):
            raise RecipeError(
                f"{self.files.folder} holds records of {held} hops, the model takes {hops}: set "
                f"model.layers, or flatten again with --hops {hops}"
            )
        if self.staleness is not None and any(isinstance(module, _BatchNorm) for module in model.modules()):
            raise RecipeError(
                "strategy.staleness: batch norm is over all workers at once; use norm = 'layer'"
            )

    def epoch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        """Take the steps that are left of the epoch and return the mean loss of its seeds."""
        if self.staleness is None:
            return super().epoch(model, optimizer)
        asked = self.between
        try:
            with Servers(model, optimizer, self.group, self.staleness) as servers:
                self._servers, self.between = servers, lambda: self._pause(servers, asked)
                return super().epoch(model, optimizer)
        finally:
            self._servers, self.between = None, asked

    def backward(self, loss: Tensor) -> None:
        """Sum the gradients over workers, or push them to the servers and pull weights."""
        if self._servers is None:
            super().backward(loss)
            return
        if loss.requires_grad:
            loss.backward()  # type: ignore[no-untyped-call]
        self._servers.step()

    def _pause(self, servers: Servers, asked: Callable[[], bool] | None) -> bool:
        """Ask now and then whether to leave the epoch: to ask, all workers have to meet."""
        if asked is None or int(self.clock[2]) % MEET:
            return False
        servers.settle()
        return asked()

    def _make_loader(self, fanout: Hops) -> Loader:
        return RecordLoader(
            self.files,
            self.source,
            seed=int(self.clock[0]),
            batch_size=self.batch_size,
            buffer=self.buffer,
            threads=self.threads,
            rank=self.group.rank,
            workers=self.group.size,
        )

    def _mapped(self, local: LocalGraph) -> Graph:
        """Return the graph that the records are of: workers map it, and read the rows that they need."""
        path = self.files.told.get("graph")
        if path is None or not Path(path).is_dir():
            raise GraphError(
                f"{self.files.folder}: the graph of the records ({path}) is not there; flatten again"
            )
        _, meta = read_directory(path, verify=False)
        if meta["num_edges"] != local.num_edges:
            raise GraphError(
                f"{self.files.folder}: records of a graph of {meta['num_edges']:,} edges, trained on is one "
                f"of {local.num_edges:,}: other directions or self loops were added; flatten that graph"
            )
        dtype = next(
            (data["x"].dtype for data in local.node_data.values() if "x" in data), torch.get_default_dtype()
        )
        return Graph.load(path, verify=False).to(dtype=dtype)
