"""Learned rows of nodes, in partitions that are larger than memory together, trained bucket by bucket."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Unpack

from weft.config import Range, bind
from weft.errors import RecipeError
from weft.exchanges.accuracy import NOT_MEASURED, AccuracyCost
from weft.graph.views import GraphView
from weft.strategies.base import RunContext, Strategy, strategies
from weft.strategies.buckets.chunks import Candidates
from weft.strategies.buckets.contrast import SOFTMAX
from weft.strategies.buckets.division import Division, check_partitions
from weft.strategies.buckets.free_visits import FreeVisits
from weft.strategies.buckets.node_tables import NodeTables, PartitionedRows
from weft.strategies.buckets.orders import OrderName
from weft.strategies.buckets.room import check_room, room_with
from weft.strategies.buckets.visits import Relations, Visits
from weft.strategies.strategy_cost import StrategyCost, costs
from weft.tasks.base import Task
from weft.tasks.link_prediction import USUAL, LinkPrediction
from weft.tasks.negatives import Negatives


@strategies.add("buckets")
class Buckets(Strategy):
    """Learn a row for each node, without layers, from links (PyTorch-BigGraph; Lerer et al., 2019).

    Nodes of each type are divided by chance into `partitions`, and an edge belongs to the bucket of its ends'
    partitions. `{user = 8, country = 1}` says it by type: as in PyTorch-BigGraph a type has the number of all
    others or 1, and is in memory all the time then. `buffer` partitions are in memory, the others in files of
    the run's folder. `order` is that of buckets in an epoch: inside_out, outside_in, chained, random,
    buffered (fewest swaps, as Marius) or rounds, in which several workers train buckets without a partition
    in common; auto is buffered in one process, rounds on several. One process that takes rounds gives their
    numbers, bit for bit. With `asynchronous` workers take buckets as they come, as PyTorch-BigGraph's lock
    server gives them out: for machines of unequal speed. Relations are then learned from weights of some age,
    no two runs are alike, and a run continues from the end of an epoch.

    A step is a `batch` of edges in chunks of `chunk`. `negatives` says what true ends are compared with:
    `{count = 50, inbatch = true, side = "both", alpha = 0.0, exclude = "known"}`, nodes of the partition that
    are drawn for each chunk, uniformly or by degree^alpha, and the other ends of the chunk's own edges; ends
    that make a training edge are left out, with exclude = "own" the pair's own alone. `count = "all"` takes
    every node of the type in the partition, and a batch is one chunk. With `weighted` drawn nodes
    stand for all of the type in the partition, in a softmax. Rows are drawn with standard deviation `scale`
    and change by row-wise Adagrad, weights of relations by Adagrad.
    """

    name: ClassVar[str] = "buckets"
    over: ClassVar[tuple[str, ...]] = ("pairs",)
    hides_batches: ClassVar[bool] = True  # there are no messages that could show a pair
    on_workers: ClassVar[bool] = True
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    score_costs: ClassVar[tuple[AccuracyCost, ...]] = NOT_MEASURED
    in_batches: ClassVar[bool] = True
    has_layers: ClassVar[bool] = False
    optimizers: ClassVar[tuple[str, ...]] = ("adagrad",)
    partitioner: ClassVar[str] = "range"  # nothing is held by parts of the graph

    def __init__(
        self,
        graph: GraphView,
        *,
        partitions: Annotated[int, Range(least=1)] | Mapping[str, int] = 1,
        buffer: Annotated[int, Range(least=2)] = 2,
        order: OrderName = "auto",
        asynchronous: bool = False,
        batch: Annotated[int, Range(least=1)] = 1000,
        chunk: Annotated[int, Range(least=1)] = 50,
        negatives: Mapping[str, Any] | None = None,
        scale: Annotated[float, Range(above=0)] = 1e-3,
        **context: Unpack[RunContext],
    ) -> None:
        super().__init__(graph, **context)
        task, workers = _links(self.task), self.group.size
        if context.get("autocast") is not None:
            raise RecipeError("train.precision: 'buckets' learns rows in float32 or float64; use one of them")
        _check_workers(workers, partitions, order, asynchronous)
        if order == "auto":
            order = "random" if asynchronous else "rounds" if workers > 1 else "buffered"
        division = Division(graph.node_types, graph.node_offsets, partitions, seed=int(self.clock[0]))
        run, width = context.get("folder"), task.node_width
        layout = NodeTables(self.shared, graph, division, buffer=buffer, width=width, scale=scale, run=run)
        how = _candidates(negatives)
        if how.weighted and task.loss.name not in SOFTMAX:
            raise RecipeError(
                f"strategy.negatives.weighted: is that of a softmax; the loss is {task.loss.name!r}"
            )
        shape = {"buffer": buffer, "batch": batch, "chunk": chunk}
        room = room_with(division, width, len(task.pairs["train"]), how, order=order, **shape)
        if self.group.rank == 0:
            check_room(room, run, first=run is None or not (run / "tables").exists())
        kind = FreeVisits if asynchronous else Visits
        visits = kind(self.shared, layout, task, order=order, candidates=how, batch=batch, chunk=chunk)
        self.learned = PartitionedRows(layout)
        self.compose(layout, visits, Relations(self.device))

    @classmethod
    def check(cls, options: Mapping[str, Any]) -> None:
        """Refuse options that cannot be."""
        super().check(options)
        check_partitions(options.get("partitions", 1))
        how = _candidates(options.get("negatives"))
        if not how.count and not how.others:
            raise RecipeError("strategy.negatives: there are none; give a count, or inbatch = true")
        if how.count == "all":
            _check_all(options, how)
        if how.weighted and (how.count in (0, "all") or how.others or how.alpha):
            raise RecipeError(
                "strategy.negatives.weighted: only nodes that are drawn uniformly stand for all others; give "
                "a count and inbatch = false, and leave alpha out"
            )
        if how.alpha and not how.count:
            raise RecipeError("strategy.negatives.alpha: is that of nodes that are drawn; give a count")

    @classmethod
    def arrangement(cls, options: Mapping[str, Any], workers: int) -> dict[str, Any]:
        """Return nothing that a partition of the graph depends on; refuse what so many workers cannot do."""
        asked = options.get("partitions", 1), options.get("order", "auto"), options.get("asynchronous", False)
        _check_workers(workers, *asked)
        return {}

    @classmethod
    def num_parts(cls, options: Mapping[str, Any], workers: int) -> int:
        """Return into how many parts the graph is cut: rows do not lie by them, so any number does."""
        return max(workers, check_partitions(options.get("partitions", 1)))


def _candidates(given: Mapping[str, Any] | None) -> Candidates:
    made: Candidates = Candidates(**bind(Candidates, given or {}, "strategy.negatives"))
    return made


def _check_all(options: Mapping[str, Any], how: Candidates) -> None:
    """Refuse what has no meaning where all nodes are candidates."""
    if how.inbatch:
        raise RecipeError("strategy.negatives.inbatch: with count = 'all' every node is there; leave it out")
    if how.alpha:
        raise RecipeError("strategy.negatives.alpha: with count = 'all' nothing is drawn; leave it out")
    if "chunk" in options:
        raise RecipeError("strategy.chunk: with negatives.count = 'all' a batch is one chunk; leave it out")


def _links(task: Task) -> LinkPrediction:
    """Return the task where it is one of links and leaves negatives to the strategy."""
    if type(task) is not LinkPrediction:
        raise RecipeError(
            f"task.name: 'buckets' learns rows from links; use 'link_prediction', not {task.name!r}"
        )
    if task.negatives != Negatives(**bind(Negatives, USUAL, "task.negatives")):
        raise RecipeError(
            "task.negatives: 'buckets' compares with candidates of a chunk; set strategy.negatives instead"
        )
    return task


def _check_workers(
    workers: int, partitions: int | Mapping[str, int], order: OrderName, asynchronous: bool
) -> None:
    if asynchronous and workers == 1:
        raise RecipeError(
            "strategy.asynchronous: one process has nobody to be ahead of; leave it out, or add --workers N"
        )
    if asynchronous and order != "auto":
        raise RecipeError(
            f"strategy.order: with asynchronous = true buckets go to whoever asks first, not in the order "
            f"{order!r}; leave it out"
        )
    count = check_partitions(partitions)
    by_type = partitions if isinstance(partitions, Mapping) else {}
    whole = [name for name, number in by_type.items() if number < count]
    if whole and (workers > 1 or order == "rounds"):
        raise RecipeError(
            f"strategy.partitions.{whole[0]}: its one partition is in every bucket, and those of a round "
            f"have none in common; give it {count}, or train in one process in another order"
        )
    if workers == 1:
        return
    if order not in ("rounds", "auto"):
        raise RecipeError(
            f"strategy.order: {order!r} visits one bucket after the other; on {workers} workers use 'rounds'"
        )
    if count < 2 * workers:
        raise RecipeError(
            f"strategy.partitions: {workers} workers train buckets without a partition in common, of which "
            f"there must be {2 * workers}, got {count}"
        )


@costs.add("buckets")
class BucketsCost(StrategyCost):
    """There is no model of layers to compare with others."""

    foretold: ClassVar[bool] = True
    untried: ClassVar[str] = "it learns a row for each node and has no layers: another model than this one"
