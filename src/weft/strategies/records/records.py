"""GraphTrainer: training from flattened neighbourhoods, which workers read as files, each its own.

`weft flatten` drew and joined the neighbourhood of every training node once; a step reads records, puts what
they share in one place and runs the model. No sampler and no partition is needed for it. The graph itself is
read for features that the records only refer to, for degrees, and for the exact evaluation; records that hold
all of these are trained from and evaluated on without it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Unpack, cast

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from weft.config import Range
from weft.errors import GraphError, InputError, RecipeError
from weft.format import read_directory
from weft.graph.graph import Graph
from weft.samplers.loader import Loader
from weft.strategies.base import evaluating, strategies
from weft.strategies.distributed import GivenToRanks
from weft.strategies.hops import found_hops
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.fanouts import Hops
from weft.strategies.minibatch.sampled import Sampled
from weft.strategies.records.graph import AnyGraph, RecordGraph, check_whole
from weft.strategies.records.loader import RecordFiles, RecordLoader
from weft.strategies.records.pairs import PairLoader, check_pairs_of
from weft.strategies.records.server import Servers
from weft.tasks.base import Pieces
from weft.tasks.nodes import NodeTargets
from weft.tasks.pairs import PairTask

# Steps after which workers that run apart meet to see whether the run is to be saved or left.
MEET = 50


@strategies.add("records")
class RecordTraining(Sampled):
    """Train on records of `weft flatten`; `records` is their folder.

    `batch_size` counts the records of all workers together; each reads its own share of the files, with
    `prepare` threads ahead of training, and shuffles in windows of `buffer` records. The neighbourhood of a
    node is the same in every epoch. The first epoch of one worker is that of `sampled` with the same seed and
    fanout, where all records fit in the buffer. `evaluate` is exact, over the whole graph, or a fanout for
    each hop. With "records" the graph is not read, nor need it be there: the records hold features by value,
    and those of the splits val and test are what is evaluated on.

    Records of pairs (`weft flatten --set task.name=link_prediction`) hold the neighbourhoods of both ends and
    of negatives, which are then the same in every epoch; the graph is read for the exact evaluation.

    Workers sum their gradients in each step. With `staleness` they push them to parameter servers, which are
    the workers themselves, and no worker is more than so many steps ahead of another; 0 is synchronous.
    Beyond 0 runs depend on who is faster, and are not continued bit for bit.
    """

    name: ClassVar[str] = "records"
    over: ClassVar[tuple[str, ...]] = ("nodes", "pairs")
    hides_batches: ClassVar[bool] = False
    devices: ClassVar[tuple[str, ...]] = ("cpu",)

    def __init__(
        self,
        graph: AnyGraph,
        *,
        part_rank: Sequence[int] | None = None,
        partitioner: str | Mapping[str, Any] = "metis",
        parts: Annotated[int, Range(least=1)] | None = None,
        records: str = "",
        batch_size: Annotated[int, Range(least=1)] = 1024,
        buffer: Annotated[int, Range(least=1)] = 16384,
        evaluate: Literal["exact", "records"] | Sequence[int] = "exact",
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
        if evaluate == "records" and not isinstance(graph, RecordGraph):
            place = {} if group is None else {"rank": group.rank, "workers": group.size}
            graph = RecordGraph(self.files, **place, dtype=_dtype(graph))
        super().__init__(
            cast(Graph, graph), part_rank=part_rank, partitioner=partitioner, parts=parts,
            fanout=self.files.fanout, batch_size=batch_size, evaluate=cast(Any, evaluate), prepare=prepare,
            **given,
        )  # fmt: skip
        self.buffer = buffer
        self._evaluators: dict[str, RecordLoader] = {}
        if isinstance(graph, RecordGraph):
            self.source: Graph | RecordGraph = graph
            self._check_labels()
        else:
            self.source = graph if isinstance(graph, Graph) else self._mapped(graph)
            check_pairs_of(self.files, self.task)
            pairs = self.task.pairs.get("train")
            self.files.check(self.source, self.targets["train"].count if pairs is None else len(pairs))

    @classmethod
    def records_alone(cls, options: Mapping[str, Any]) -> str | None:
        """Return the folder of records that all is read from; None where a graph is."""
        return str(options["records"]) if options.get("evaluate") == "records" else None

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse a folder that holds no records, before any data is read."""
        if not options.get("records"):
            raise RecipeError(
                "strategy.records: expected the folder that `weft flatten GRAPH --out DIR` wrote"
            )
        files = RecordFiles.open(options["records"])
        if options.get("evaluate") == "records":
            check_whole(files)
            for name in ("parts", "partitioner"):
                if options.get(name) is not None:
                    raise RecipeError(
                        f"strategy.{name}: with evaluate = 'records' no graph is read, or cut; leave it out"
                    )
        super().check(options)

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of other hops than the records have, and what servers cannot do."""
        hops, held = found_hops(model, self.graph.x), len(self.files.fanout)
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

    def split_outputs(self, model: nn.Module) -> dict[str, Pieces]:
        """Return the outputs of the own rows of each split: over the graph, or of the records."""
        if not isinstance(self.source, RecordGraph):
            return super().split_outputs(model)
        first = self.source.first
        return {
            split: [(self._record_outputs(model, split)[held.rows - first[split]], held.y)]
            for split, held in self.scored.items()
            if isinstance(held, NodeTargets)
        }

    def predict(self, model: nn.Module) -> Tensor:
        """Return the exact outputs for every node of the target type, on every worker."""
        if isinstance(self.source, RecordGraph):
            raise InputError("outputs of all nodes are computed on the graph: weft infer RUN --graph GRAPH")
        return super().predict(model)

    def _record_outputs(self, model: nn.Module, split: str) -> Tensor:
        """Return the outputs of the own records of a split, in their order."""
        if split not in self._evaluators:
            self._evaluators[split] = self._loader_of(split, shuffle=False)
        loader = self._evaluators[split]
        loader.seek(0)  # what was read before is still there
        with evaluating(model):
            outputs = [self.batch_outputs(model, batch) for batch in loader if batch.seeds.numel()]
        dtype = next((value.dtype for value in model.parameters()), torch.float32)
        return torch.cat(outputs) if outputs else torch.zeros(0, self.task.width, dtype=dtype)

    def _check_labels(self) -> None:
        """Refuse training records without a label; of the others those with one are evaluated on."""
        without = self.files.splits["train"] - self.targets["train"].count
        if without:
            raise InputError(
                f"{self.files.folder}: {without:,} training records have no label; take these nodes out of "
                "train_mask and flatten again"
            )

    def _pause(self, servers: Servers, asked: Callable[[], bool] | None) -> bool:
        """Ask now and then whether to leave the epoch: to ask, all workers have to meet."""
        if asked is None or int(self.clock[2]) % MEET:
            return False
        servers.settle()
        return asked()

    def _make_loader(self, fanout: Hops) -> Loader:
        return self._loader_of("train")

    def _loader_of(self, split: str, *, shuffle: bool = True) -> RecordLoader:
        made = partial(PairLoader, self.task) if isinstance(self.task, PairTask) else RecordLoader
        return made(
            self.files,
            self.source,
            split=split,
            shuffle=shuffle,
            seed=int(self.clock[0]),
            batch_size=self.batch_size,
            buffer=self.buffer,
            threads=self.threads,
            rank=self.group.rank,
            workers=self.group.size,
        )

    def _mapped(self, local: LocalGraph) -> Graph:
        """Return the graph that the records are of: workers map it, and read the rows that they need."""
        path = self.files.graph_path
        if not path.is_dir():
            raise GraphError(
                f"{self.files.folder}: the graph of the records ({path}) is not there; flatten again"
            )
        _, meta = read_directory(path, verify=False)
        if meta["num_edges"] != local.num_edges:
            raise GraphError(
                f"{self.files.folder}: records of a graph of {meta['num_edges']:,} edges, trained on is one "
                f"of {local.num_edges:,}: other directions or self loops were added; flatten that graph"
            )
        return Graph.load(path, verify=False).to(dtype=_dtype(local))


def _dtype(graph: Graph | LocalGraph) -> torch.dtype:
    held = (data["x"].dtype for data in graph.node_data.values() if "x" in data)
    return next(held, torch.get_default_dtype())
