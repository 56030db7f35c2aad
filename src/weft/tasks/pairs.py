"""What tasks of pairs share: which pairs there are, who has them, and the rows of both ends.

A pair belongs to the worker that holds its target. All workers know all pairs, which lie in one file beside
the parts; draws are keyed by a pair's number, so that whoever holds it draws the same.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import torch
from safetensors.torch import save
from torch import Tensor, nn

from weft.config import Range, bind
from weft.errors import FormatError, GraphError, InputError, RecipeError
from weft.graph.graph import Graph
from weft.graph.node_pairs import Pairs
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.reading.damage import reading
from weft.reading.tensors import expect_columns, load_tensors
from weft.samplers.edges import Draws, EdgeLoader
from weft.samplers.loader import Loader
from weft.tasks.base import SPLITS, Targets, Task, Total, head_of
from weft.tasks.loss import Loss
from weft.tasks.ranking import Ranks
from weft.tasks.split import By, forgetting, split_pairs

FILE = "pairs.safetensors"
"""What a folder of parts holds the pairs in."""
SHARE = 0.3
"""Of the training pairs, those that are targets and no messages where the graph of a run is fixed."""
Count = Annotated[int, Range(least=1)]
Hide = Literal["auto", "batch", "disjoint", "none"]


def split_options(
    *, by: By = "auto", key: str | None = None, val: float = 0.05, test: float = 0.1, seed: int = 0
) -> dict[str, Any]:
    """Return which pairs are validation and test.

    `by` is "random", "time", "given" or "auto": as given where it is, else random. `val` and `test` are
    shares of pairs, drawn by `seed`; by time, the first times of validation and test in the edge data `key`.
    """
    return {"by": by, "key": key, "val": val, "test": test, "seed": seed}


def _checked_split(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a split, or refuse those that its way of splitting would not read."""
    by = options.get("by", "auto")
    missing = [name for name in ("val", "test") if name not in options]
    if by == "time" and missing:
        raise RecipeError(
            f"task.split.{missing[0]}: by = 'time' needs val and test, the first times of validation and test"
        )
    unread = {"time": (), "given": ("key", "val", "test")}.get(by, ("key",))
    for name in unread:
        if name in options:
            raise RecipeError(
                f"task.split.{name}: by = {by!r} does not read it; leave it out, or set task.split.by"
            )
    return split_options(**options)


class PairTask(Task):
    """A task whose targets are pairs of nodes. A subclass scores them, and names losses and metrics."""

    over: ClassVar[Literal["nodes", "pairs"]] = "pairs"
    split_by: ClassVar[str] = "task.split"
    label: str | None = None
    """The edge data to predict; None: whether there is an edge."""

    def __init__(
        self,
        *,
        target: Any = None,
        split: Mapping[str, Any] | None = None,
        hide: Hide = "auto",
        share: Annotated[float, Range(above=0, below=1)] = SHARE,
        width: Count = 64,
        loss: str | Mapping[str, Any] | Loss = "auto",
    ) -> None:
        self.target, self.node_width, self.loss_choice = target, width, loss
        self.split = _checked_split(bind(split_options, split or {}, "task.split"))
        self.hide, self.share = hide, share
        self._pairs: dict[str, Pairs] = {}

    @property
    def pairs(self) -> Mapping[str, Pairs]:
        """All pairs of each split."""
        return self._pairs

    def hides(self, batches: bool) -> None:
        """Settle how training pairs are kept out of messages: by batches where there are any that can."""
        if self.hide == "auto":
            self.hide = "batch" if batches and self.usual_hide != "none" else self.usual_hide
        if self.hide == "batch" and not batches:
            raise RecipeError(
                "task.hide: this strategy has one graph for all steps and cannot hide a batch's pairs; use "
                "'disjoint' or 'none', or strategy.name = 'sampled'"
            )
        if self.share != SHARE and self.hide != "disjoint":
            raise RecipeError(
                f"task.share: is that of hide = 'disjoint', not of {self.hide!r}; leave it out, or set that"
            )

    @classmethod
    def hides_batches(cls, options: Mapping[str, Any]) -> bool:
        """Return whether a step that has a graph of its own hides its pairs there."""
        hide = options.get("hide", "auto")
        return cls.usual_hide != "none" if hide == "auto" else hide == "batch"

    usual_hide: ClassVar[Hide] = "disjoint"
    """How where the graph is the same in every step; "none": never, where that a pair is joined is known."""

    def prepared(self, graph: Graph) -> Graph:
        """Return the graph without validation and test pairs, and without those that are targets alone."""
        disjoint = self.share if self.hide == "disjoint" else 0.0
        with naming_options():
            shown, self._pairs = split_pairs(
                graph, target=self.target, disjoint=disjoint, label=self.label, **self.split
            )
        self.learn(graph, shown)
        return shown

    def shown(self, graph: Graph, *, all_edges: bool = False) -> Graph:
        """Return the message graph of training, or all edges; neither shows labels and splits."""
        if all_edges:
            return forgetting(graph, self.label)
        try:
            return self.prepared(graph)
        except GraphError as error:
            raise GraphError(f"the messages of training: {error}; or use every edge: --all-edges") from None

    def learn(self, graph: Graph, shown: Graph) -> None:
        """Note what of the whole graph is needed beyond the pairs."""

    def files(self) -> dict[str, bytes]:
        tensors: dict[str, Tensor] = {}
        for split, pairs in self._pairs.items():
            columns = {name: getattr(pairs, name) for name in ("src", "dst", "keys", "relation", "y", "time")}
            columns |= {f"data.{name}": value for name, value in pairs.data.items()}
            tensors |= {f"{split}.{name}": v.contiguous() for name, v in columns.items() if v is not None}
        return {FILE: save(tensors)}

    def read(self, folder: Path) -> None:
        """Take the pairs that lie beside the parts."""
        path = folder / FILE
        if not path.is_file():
            raise FormatError(
                f"{folder} was cut for another task and has no pairs; let `weft train --workers` cut it"
            )
        tensors = load_tensors(path)
        self._pairs = {split: _columns(tensors, split, path) for split in SPLITS if f"{split}.src" in tensors}

    def training_pairs(self) -> Pairs:
        """Return the pairs to train on, of which there must be some."""
        if not self._pairs:
            raise GraphError(f"the task {self.name!r} has no pairs yet: prepare the graph for it first")
        if "train" not in self._pairs:
            more = f", or more than task.share = {self.share}" if self.hide == "disjoint" else ""
            raise GraphError(f"no pair is left to train on; give another task.split{more}")
        return self._pairs["train"]

    def targets(self, graph: GraphView, total: Total) -> dict[str, Targets]:
        """Return the own pairs of every split."""
        own = graph.own_ids
        by_split: dict[str, Targets] = {}
        self.training_pairs()  # refuses a split that leaves none
        for split, pairs in self._pairs.items():
            mine = pairs if own is None else pairs.take(torch.isin(pairs.dst, own))
            by_split[split] = self.make_targets(mine, split)
            by_split[split].count = self.rows_per_pair * len(pairs)
        self.loss = self.make_loss(by_split["train"], total)
        return by_split

    rows_per_pair: int = 1
    """Rows of outputs for each pair."""

    def make_loader(self, sampler: Any, **options: Any) -> Loader:
        """Return batches of the training pairs; a step hides its own, those of all workers, either way."""
        hides = self.hide == "batch"
        negatives = self.step_negatives()
        reverse = True if hides else None
        return EdgeLoader(sampler, negatives, self.pairs["train"], hide=hides, reverse=reverse, **options)

    # An evaluation on batches: where each pair sees a graph of its own, that until its time

    def evaluation_loader(self, sampler: Any, split: str, **options: Any) -> Loader:
        """Return batches of the pairs of a split, in order, to be evaluated on; nothing is hidden there."""
        negatives, pairs = self.evaluation_negatives(), self.pairs[split]
        return EdgeLoader(sampler, negatives, pairs, hide=False, shuffle=False, **options)

    def evaluation_negatives(self) -> Draws | None:
        """Return what draws the negatives of an evaluation; None: there are none."""
        return None

    def evaluated_nothing(self, split: str) -> tuple[Tensor | Ranks, Tensor]:
        """Return what `evaluated_batch` gives of no pair."""
        y = self.pairs[split].y
        return torch.zeros(0, self.width), torch.zeros(0) if y is None else y[:0]

    def fixed_ends(self) -> Tensor:
        """Return the ends of each training pair and its negatives of epoch 0, [n, 2 + k], for records."""
        pairs, draws = self.training_pairs(), self.step_negatives()
        ends = torch.stack([pairs.src, pairs.dst], 1)
        if draws is None:
            return ends
        drawn: Any = draws(pairs, 0, 0, batch=pairs)
        if drawn.nodes.dim() == 1:
            raise RecipeError(
                "task.negatives: a record holds those of its own pair, and these are shared by a step; use "
                "'uniform' or 'degree'"
            )
        sides = drawn.nodes.reshape(-1, len(pairs), drawn.nodes.shape[1])
        return torch.cat([ends, *sides], 1)

    def record_mark(self) -> str:
        """Return what tells the records of these pairs and negatives from those of others."""
        return hashlib.sha256(self.fixed_ends().contiguous().numpy().tobytes()).hexdigest()

    def make_targets(self, pairs: Pairs, split: str) -> Targets:
        """Return own pairs as targets."""
        raise NotImplementedError

    def output_names(self, training: Mapping[str, Any], target_type: str) -> list[str] | None:
        """Return the names of the classes of edges, where all relations have the same."""
        named = list(training.get("edge_classes", {}).values())
        return list(named[0]) if named and all(names == named[0] for names in named) else None

    @property
    def reads(self) -> Sequence[str]:
        """The names of what is read of a pair beside its ends and its relation."""
        return ()

    def of_pairs(self, model: nn.Module, src: Tensor, dst: Tensor, pairs: Pairs) -> Tensor:
        """Return what is said of any pairs, [n, columns], from the rows of their ends [n, d]."""
        outputs: Tensor = head_for(model, src)(src, dst, pairs.relation)
        return outputs[:, None] if outputs.dim() == 1 else outputs

    def columns(self, info: GraphInfo) -> int:
        """Return the width of nodes' rows."""
        return self.node_width


@contextmanager
def naming_options() -> Iterator[None]:
    """Name the option of a recipe where what `split_pairs` refuses begins with an argument."""
    try:
        yield
    except InputError as error:
        words = re.split(r"\W", str(error), maxsplit=1)
        where = {"target": "task.", "label": "task.", "no": "task.target: "}
        where |= dict.fromkeys(("by", "val", "edge"), "task.split: ")
        raise type(error)(f"{where.get(words[0], '')}{error}") from None


def about_pairs(task: Task, otherwise: Exception) -> PairTask:
    """Return the task where its targets are pairs; else raise."""
    if not isinstance(task, PairTask):
        raise otherwise
    return task


def head_for(model: nn.Module, h: Tensor) -> Any:
    """Return the head of a model whose rows are as wide as it expects."""
    head: Any = head_of(model)
    width = getattr(head, "width", h.shape[1])
    if width != h.shape[1]:
        raise RecipeError(
            f"task.width: the model gives {h.shape[1]} columns a node, the head was made for {width}: set "
            f"task.width = {h.shape[1]}"
        )
    return head


def _columns(tensors: Mapping[str, Tensor], split: str, path: Path) -> Pairs:
    mine = {name.removeprefix(f"{split}."): v for name, v in tensors.items() if name.startswith(f"{split}.")}
    expect_columns(mine, path, whole=("src", "dst", "keys", "relation"))
    data = {name.removeprefix("data."): mine.pop(name) for name in [*mine] if name.startswith("data.")}
    with reading(path):
        return Pairs(**mine, data=data)
