"""GraphTrainer: training from flattened neighbourhoods, which workers read as files, each its own.

`weft flatten` drew and joined the neighbourhood of every training node once; a step reads records, puts what
they share in one place and runs the model. No sampler and no partition is needed for it. The graph itself is
read for features that the records only refer to, for degrees, and for the exact evaluation; records that hold
all of these are trained from and evaluated on without it.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Unpack

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from weft.comm.group import Group
from weft.config import Range
from weft.errors import GraphError, InputError, RecipeError
from weft.exchanges.accuracy import NOT_MEASURED, AccuracyCost
from weft.format import read_directory
from weft.graph.graph import Graph
from weft.graph.views import GraphView
from weft.samplers.loader import Loader
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.batching import Beside
from weft.strategies.hops import checked_hops, hops_of
from weft.strategies.layout import Layout
from weft.strategies.local import LocalGraph
from weft.strategies.minibatch.batch_source import GraphSource, PartSource, source_of
from weft.strategies.minibatch.fanouts import check_fanouts
from weft.strategies.minibatch.loaded import LoadedBatches
from weft.strategies.minibatch.neighbourhoods import Neighbourhoods
from weft.strategies.minibatch.neighbours import DrawSettings, GraphNeighbours, Neighbours, PartNeighbours
from weft.strategies.minibatch.pair_limits import refuse_nodes_alone
from weft.strategies.records.batch_blocks import RecordSource, WholeGraph
from weft.strategies.records.pair_records import PairLoader, check_pairs_of
from weft.strategies.records.record_graph import RecordGraph, check_whole
from weft.strategies.records.record_loader import RecordFiles, RecordLoader
from weft.strategies.records.server import Servers
from weft.strategies.reducer import PlainReducer, Summed, reducer_of
from weft.strategies.shared import Shared
from weft.strategies.strategy_cost import StrategyCost, costs
from weft.tasks.base import Pieces, Task

# Steps after which workers that run apart meet to see whether the run is to be saved or left.
MEET = 50


@strategies.add("records")
class RecordTraining(Strategy):
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
    on_workers: ClassVar[bool] = True
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = NOT_MEASURED
    in_batches: ClassVar[bool] = True
    batching: "RecordBatches"

    def __init__(
        self,
        graph: Graph | LocalGraph | RecordGraph,
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
        **context: Unpack[RunContext],
    ) -> None:
        files, group = RecordFiles.open(records), context.get("group") or Group.alone()
        if staleness is not None and group.size == 1:
            raise RecipeError(
                "strategy.staleness: one process has nobody to be ahead of; leave it out, or add --workers N"
            )
        alone = evaluate == "records"  # and so is what is held, whatever graph was read before
        of_records = (
            RecordGraph(files, rank=group.rank, workers=group.size, dtype=_dtype(graph)) if alone else None
        )
        super().__init__(graph if of_records is None else of_records, **context)
        drawing = DrawSettings("neighbor", {"seed": int(self.clock[0])}, batch_size, prepare)
        train = self.targets["train"].count
        if of_records is not None:
            _check_known(files, train, self.task)
            rows = RecordRows(self.shared, of_records)
            batching = RecordBatches(
                rows, files, of_records, drawing, buffer=buffer, first_rows=of_records.first
            )
        else:
            source = source_of(self.shared, graph, part_rank=part_rank)
            whole = _mapped(files, source.graph) if source.in_parts else source.graph
            check_pairs_of(files, self.task)
            pairs = self.task.pairs.get("train")
            files.check(whole, train if pairs is None else len(pairs))
            drawn = _neighbourhoods(source, files, drawing, evaluate)
            evaluation = WholeGraph(whole)
            batching = RecordBatches(drawn.layout, files, evaluation, drawing, buffer=buffer, evaluated=drawn)
        reducer = reducer_of(self.group) if staleness is None else Served(self.group, staleness)
        self.compose(batching.layout, batching, reducer)

    @classmethod
    def records_alone(cls, options: Mapping[str, Any]) -> str | None:
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
        check_fanouts(options.get("evaluate"), "strategy.evaluate")

    @classmethod
    def check_pairs(cls, options: Mapping[str, Any], hides: bool) -> None:
        """Refuse what is for records of nodes alone."""
        refuse_nodes_alone(options)


class RecordBatches(LoadedBatches):
    """Records that a worker reads from files, and puts what they share in one place.

    `evaluated` gives the outputs that are scored; None: the records of other splits are what is scored,
    whose first rows are `first_rows`.
    """

    def __init__(
        self,
        layout: Layout,
        files: RecordFiles,
        source: RecordSource,
        drawing: DrawSettings,
        *,
        buffer: int,
        evaluated: Neighbourhoods | None = None,
        first_rows: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__(layout.shared, layout)
        self.first_rows = {} if first_rows is None else first_rows
        self.files, self.source, self.drawing = files, source, drawing
        self.buffer, self.evaluated = buffer, evaluated
        self._evaluators: dict[str, RecordLoader] = {}

    def check_model(self, model: nn.Module) -> None:
        """Refuse a model of other hops than the records have."""
        hops, made_for = hops_of(model, self.layout.graph.x), len(self.files.fanout)
        if hops not in (None, made_for):
            raise RecipeError(
                f"{self.files.folder} holds records of {made_for} hops, the model takes {hops}: set "
                f"model.layers, or flatten again with --hops {hops}"
            )

    def make_loader(self, model: nn.Module) -> Loader:
        """Return the loader of the own training records."""
        checked_hops(model, self.files.fanout, "strategy.fanout", self.layout.graph.x)
        return self._loader_of("train")

    def outputs(self, model: nn.Module) -> tuple[dict[str, Pieces], Beside]:
        """Return the outputs of the own targets of each split: over the graph, or of the records."""
        if self.evaluated is not None:
            return self.evaluated.outputs(model)
        outputs: dict[str, Pieces] = {
            split: [(self._record_outputs(model, split, targets.rows), targets.y)]
            for split, targets in self.shared.scored.items()
        }
        return outputs, {}

    def node_outputs(self, model: nn.Module) -> Tensor:
        """Return the outputs of all own nodes, where there is a graph."""
        if self.evaluated is None:
            raise InputError("outputs of all nodes are computed on the graph: weft infer RUN --graph GRAPH")
        return self.evaluated.node_outputs(model)

    def _record_outputs(self, model: nn.Module, split: str, rows: Tensor) -> Tensor:
        """Return the outputs of own records of a split, whose rows are among those of all splits."""
        if split not in self._evaluators:
            self._evaluators[split] = self._loader_of(split, shuffle=False)
        loader = self._evaluators[split]
        loader.seek(0)  # what was read before is still there
        outputs = [self.batch_outputs(model, batch) for batch in loader if batch.seeds.numel()]
        dtype = next((value.dtype for value in model.parameters()), torch.float32)
        joined = torch.cat(outputs) if outputs else torch.zeros(0, self.shared.task.width, dtype=dtype)
        return joined[rows - self.first_rows[split]]

    def _loader_of(self, split: str, *, shuffle: bool = True) -> RecordLoader:
        task = self.shared.task
        made = RecordLoader if task.over == "nodes" else partial(PairLoader, task)
        return made(
            self.files,
            self.source,
            split=split,
            shuffle=shuffle,
            seed=int(self.shared.clock[0]),
            buffer=self.buffer,
            rank=self.shared.group.rank,
            workers=self.shared.group.size,
            **self.drawing.loading,
        )


class RecordRows(Layout):
    """Records that stand for a graph: there are targets, and no rows of other nodes."""

    def __init__(self, shared: Shared, graph: RecordGraph) -> None:
        super().__init__(shared)
        self.graph = graph


class Served(Summed):
    """Gradients are pushed to parameter servers, which are the workers, and weights pulled from them."""

    def __init__(self, group: Group, staleness: int) -> None:
        super().__init__(group)
        self.staleness = staleness
        self._servers: Servers | None = None

    def check_model(self, model: nn.Module) -> None:
        """Refuse what servers cannot do."""
        if any(isinstance(module, _BatchNorm) for module in model.modules()):
            raise RecipeError(
                "strategy.staleness: batch norm is over all workers at once; use norm = 'layer'"
            )

    @contextmanager
    def epoch(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[None]:
        """Have servers for the steps of an epoch."""
        try:
            with Servers(model, optimizer, self.group, self.staleness) as self._servers:
                yield
        finally:
            self._servers = None

    def backward(self, loss: Tensor) -> None:
        """Push the gradients to the servers and pull weights."""
        assert self._servers is not None, "steps are in an epoch"
        PlainReducer.backward(self, loss)
        self._servers.step()

    def meets(self, step: int) -> bool:
        """Return now and then True, when all workers have come together."""
        if step % MEET or self._servers is None:
            return False
        self._servers.settle()
        return True


def _neighbourhoods(
    source: GraphSource | PartSource, files: RecordFiles, drawing: DrawSettings, evaluate: Any
) -> Neighbourhoods:
    """Return what an evaluation over the graph is made of: all edges, or samples of them."""
    neighbours: Neighbours
    if source.in_parts:
        neighbours = PartNeighbours(source, drawing)
    else:
        neighbours = GraphNeighbours(source, drawing, "cpu")
    return Neighbourhoods(neighbours, fanout=files.fanout, evaluate=evaluate)


def _check_known(files: RecordFiles, count: int, task: Task) -> None:
    """Refuse training records of which nothing is known; of the others those with it are evaluated on."""
    without = files.splits["train"] - count
    if without:
        raise InputError(
            f"{files.folder}: {without:,} training records have no {task.known_as}; take these out of "
            f"{task.split_by.format('train')} and flatten again"
        )


def _mapped(files: RecordFiles, local: LocalGraph) -> Graph:
    """Return the graph that the records are of: workers map it, and read the rows that they need."""
    path = files.graph_path
    if not path.is_dir():
        raise GraphError(f"{files.folder}: the graph of the records ({path}) is not there; flatten again")
    _, meta = read_directory(path, verify=False)
    if meta["num_edges"] != local.num_edges:
        raise GraphError(
            f"{files.folder}: records of a graph of {meta['num_edges']:,} edges, trained on is one of "
            f"{local.num_edges:,}: other directions or self loops were added; flatten that graph"
        )
    return Graph.load(path, verify=False).to(dtype=_dtype(local))


def _dtype(graph: GraphView) -> torch.dtype:
    dtypes = (data["x"].dtype for data in graph.node_data.values() if "x" in data)
    return next(dtypes, torch.get_default_dtype())


@costs.add("records")
class RecordsCost(StrategyCost):
    """Files are made once, by `weft flatten`."""

    untried: ClassVar[str] = "it reads neighbourhoods that `weft flatten` has to make first"
