"""Which pairs of nodes are joined."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, ClassVar

import torch
from safetensors.torch import save
from torch import Tensor, nn

from weft.config import bind
from weft.errors import FormatError, GraphError, InputError, RecipeError
from weft.graph.graph import Graph
from weft.graph.known import Known
from weft.graph.node_pairs import Pairs
from weft.graph.views import GraphView
from weft.layers.base import GraphInfo
from weft.reading.damage import reading
from weft.reading.tensors import load_tensors
from weft.samplers.edges import Draws, EdgeBatch
from weft.tasks.base import EVALUATION, Targets, Total, tasks
from weft.tasks.link_targets import LinkTargets, own_scores
from weft.tasks.loss import Loss
from weft.tasks.metrics import Metric
from weft.tasks.negatives import Drawn, Negatives, Nodes, ends_of, node_times
from weft.tasks.pair_loss import CORRECTED, PAIR_LOSSES, SIGNED, pair_loss
from weft.tasks.pairs import PairTask, head_for
from weft.tasks.penalty import check_penalty
from weft.tasks.ranking import AMONG_ALL, LEFT_OUT, RANKING, RAW, num_negatives
from weft.tasks.scores import check_scorer, check_sign, make_scorer, rows_at

KNOWN = {"all": "known.npy", "train": "known_train.npy"}
"""Files of links that there are: of all splits, and of those that training may know of."""
TIMES = "node_times.safetensors"
"""When each node came, where negatives go by it."""
USUAL = {"name": "uniform", "count": 1}
MOST = 1 << 26
"""Scores that every worker may hold at the end of a run, for metrics that need all of them."""
EVALUATED = {"name": "uniform", "count": 100, "exclude": "known"}


@tasks.add("link_prediction")
class LinkPrediction(PairTask):
    """Predict which nodes are joined. A model's rows of both ends are scored, true pairs above negatives.

    `target` names the relations to predict, by default all of a graph with one node type; `split` says which
    edges are validation and test: `{by = "random", val = 0.05, test = 0.1}`, "time" with `key`, `val` and
    `test` as first times, or "given". None of these is a message. Training pairs are hidden from the step
    that scores them: `hide` is "batch" where batches can (`sampled`), else "disjoint": a `share` of them are
    targets and no messages. "none" lets a model look the answer up.

    `width` is how wide a node's row is; `score` a name or a table: dot, cosine, bilinear, distmult, complex,
    rotate, transe, affine, mlp. `negatives` is a name or a table: uniform, degree, joint, inbatch or hard,
    with `count`, `side` and `exclude = "known"`. `evaluate` has the same words, or name = "all", which with
    `filtered = true` ranks as knowledge graphs are; its negatives are the same at every evaluation. The loss
    is a name, or a table with its options: cross_entropy, bpr, margin, infonce (softmax) or
    self_adversarial, say `{name = "self_adversarial", temperature = 1.0}`. `regularise` keeps the rows of
    training pairs and relations small: `{name = "n3", weight = 0.01}`, or "l2".
    """

    name: ClassVar[str] = "link_prediction"
    metrics: Mapping[str, Metric] = RANKING
    metric: ClassVar[str] = "mrr"
    measures: ClassVar[Mapping[str, Metric]] = {"negatives": num_negatives}
    watched: ClassVar[tuple[str, ...]] = ("hits@10",)
    beside: ClassVar[tuple[str, ...]] = tuple(RAW)
    losses: ClassVar[Mapping[str, Loss]] = {name: pair_loss(name) for name in PAIR_LOSSES}

    def __init__(
        self,
        *,
        score: str | Mapping[str, Any] = "dot",
        negatives: str | Mapping[str, Any] | None = None,
        evaluate: str | Mapping[str, Any] | None = None,
        regularise: str | Mapping[str, Any] | None = None,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        loss = self.loss_choice
        self.penalty = check_penalty(regularise)
        check_scorer(score)
        self.score = score
        self.negatives = _negatives(USUAL if negatives is None else negatives, "task.negatives")
        self.evaluated = _negatives(EVALUATED if evaluate is None else evaluate, "task.evaluate")
        if self.evaluated.filtered:
            self.metrics = AMONG_ALL
        if self.negatives.name == "all":
            raise RecipeError("task.negatives: 'all' is for task.evaluate; use 'joint' with a count")
        named = loss.get("name", "auto") if isinstance(loss, Mapping) else loss
        named = next(iter(self.losses)) if named == "auto" else named
        if isinstance(named, str) and named in SIGNED:
            check_sign(score, named)
        if self.penalty and self.negatives.name == "inbatch" and named in CORRECTED:
            raise RecipeError(
                f"task.regularise: not beside the correction of 'inbatch' negatives in {named!r}; use 'joint'"
            )
        self.known: dict[str, Known] = {}
        self.node_time: Tensor | None = None

    @classmethod
    def loss_of(cls, name: str, options: Mapping[str, Any]) -> Loss:
        """Return a loss of links with its options."""
        return pair_loss(name, **options) if options else super().loss_of(name, options)

    def learn(self, graph: Graph, shown: Graph) -> None:
        """Note the links there are, where negatives must be none of them."""
        # What training leaves out of its negatives must not tell of links to be found later.
        pairs = {
            "all": [*self._pairs.values()],
            "train": [self._pairs[s] for s in self._pairs if s == "train"],
        }
        # Messages lack what joins the ends of held-out pairs: of all that is true the whole graph tells.
        graphs = {"all": graph, "train": shown}
        both = False if self.evaluated.filtered else None  # a fact is known the way that it was told
        self.known = {
            name: Known.of(graphs[name], *pairs[name], undirected=both if name == "all" else None)
            for name in self._excluded
        }
        self.node_time = node_times(graph) if self._temporal else None

    def files(self) -> dict[str, bytes]:
        """Return the pairs, and the known links where negatives must be none of them."""
        times = {} if self.node_time is None else {TIMES: save({"time": self.node_time})}
        known = {KNOWN[name]: known.to_bytes() for name, known in self.known.items()}
        return {**super().files(), **times, **known}

    def read(self, folder: Path) -> None:
        """Take the pairs and the known links that lie beside the parts."""
        super().read(folder)
        for name in self._excluded:
            if not (folder / KNOWN[name]).is_file():
                raise FormatError(f"{folder} holds no known links; let `weft train --workers` cut the graph")
            self.known[name] = Known.map(folder / KNOWN[name])
        if self._temporal and (folder / TIMES).is_file():
            with reading(folder / TIMES):
                self.node_time = load_tensors(folder / TIMES)["time"]

    def targets(self, graph: GraphView, total: Total) -> dict[str, Targets]:
        """Return the own pairs of every split, and settle what negatives are drawn from."""
        self.among = self._nodes(graph)
        self.rows_per_pair = len(self.evaluated.sides)
        self.relations = [" ".join(kind) for kind in graph.edge_types]
        targets = super().targets(graph, total)
        targets["train"].count = self.rows_per_target * len(self._pairs["train"])
        return targets

    def make_targets(self, pairs: Pairs, split: str) -> Targets:
        return LinkTargets(self, pairs, split)

    def make_loss(self, train: Targets, total: Total) -> Loss:
        """Return the loss, to which penalties are added."""
        loss = super().make_loss(train, total)
        if loss.own and self.penalty:
            raise RecipeError("task.regularise: train.loss is a function of your own; leave it out")
        return loss

    def make_head(self, columns: int, info: GraphInfo) -> nn.Module | None:
        """Return the scorer."""
        scorer: nn.Module = make_scorer(self.score, columns, num_relations=info.num_relations)
        return scorer

    def predicted(self, outputs: Tensor, names: Sequence[str] | None = None) -> dict[str, Any]:
        """Return the `score`; the higher, the likelier."""
        return {"score": outputs[:, 0].numpy()}

    def gathers(self, scored: Mapping[str, Targets]) -> bool:
        """Return whether all scores are few enough for every worker to hold."""
        return self.holds(scored)

    def holds(self, scored: Mapping[str, Targets]) -> bool:
        """Return whether all scores are few enough to be held at once; filtered ranks have none."""
        if self.evaluated.filtered:
            return False
        columns = 1 + (self.evaluated.count or int(self.among.offsets[-1]))
        return columns * sum(targets.count for targets in scored.values()) <= MOST

    def how(self, epoch: int) -> Negatives:
        """Return which negatives an epoch has, or an evaluation."""
        return self.evaluated if epoch == EVALUATION else self.negatives

    def draw(self, pairs: Pairs, epoch: int, step: int = 0, batch: Pairs | None = None) -> Drawn:
        """Return negatives of pairs: of a step of an epoch, or those of every evaluation."""
        when, name = (None, "all") if epoch == EVALUATION else (epoch, "train")
        known, where = self.known.get(name), "evaluate" if epoch == EVALUATION else "negatives"
        with _named(f"task.{where}"):
            return self.how(epoch).draw(pairs, when, among=self.among, known=known, step=step, batch=batch)

    def candidates(self, nodes: Tensor | None = None) -> Tensor:
        """Return all nodes that an end of a pair may be, or those of some, rising as these."""
        among = self.among
        kinds = sorted({kind for side in among.kinds.values() for kind in side})
        if nodes is not None:
            return nodes[torch.isin(torch.from_numpy(among.kind(nodes)), torch.tensor(kinds))]
        return torch.cat([torch.arange(among.offsets[kind], among.offsets[kind + 1]) for kind in kinds])

    def step_negatives(self) -> Draws:
        """Return what draws the negatives of a step."""
        return self.draw

    @property
    def rows_per_target(self) -> int:  # type: ignore[override]
        """A row for each side that is replaced."""
        return len(self.negatives.sides)

    def of_batch(self, model: nn.Module, h: Tensor, batch: EdgeBatch) -> Tensor:
        """Return [n, 1 + k] for each side of the batch's own pairs, and note what is added to their loss."""
        batch.penalty = self.penalties(model, h, batch.src, batch.dst, batch.pairs)
        return self._of_batch(model, h, batch, self.negatives)

    def evaluation_negatives(self) -> Draws:
        """Return what draws the negatives of an evaluation, the same in each."""
        if self.evaluated.filtered:
            raise RecipeError(
                "task.evaluate: filtered ranks are among all nodes of one graph, and here each pair sees its "
                "own; leave filtered out"
            )
        return lambda pairs, epoch, step, *, batch: self.draw(pairs, EVALUATION, batch=batch)

    def evaluated_batch(self, model: nn.Module, h: Tensor, batch: EdgeBatch) -> tuple[Tensor, Tensor]:
        """Return [n, 1 + k] for each side of pairs that are evaluated."""
        outputs = self._of_batch(model, h, batch, self.evaluated)
        return outputs, torch.zeros(len(outputs), device=outputs.device)

    def evaluated_nothing(self, split: str) -> tuple[Tensor, Tensor]:
        return torch.zeros(0, 1 + (self.evaluated.count or 1)), torch.zeros(0)

    def _of_batch(self, model: nn.Module, h: Tensor, batch: EdgeBatch, how: Negatives) -> Tensor:
        drawn = _drawn(batch)
        return self.scores(model, h, batch.src, batch.dst, drawn, batch.negative, batch.pairs, how)

    def values_of_batch(self, batch: EdgeBatch) -> Tensor:
        """Return the corrections of in-batch negatives, or what is added to losses."""
        rows = batch.nodes.num_targets
        terms = self.corrections(_drawn(batch), batch.src, batch.dst, batch.negative, self.negatives, rows)
        return terms if batch.penalty is None else batch.penalty

    def scores(
        self,
        model: nn.Module,
        rows: Tensor,
        src: Tensor,
        dst: Tensor,
        drawn: Drawn,
        negative: Tensor,
        pairs: Pairs,
        how: Negatives,
    ) -> Tensor:
        """Return [n, 1 + k] for each side; src, dst [n] and negative, as `drawn.nodes`, are rows' places."""
        scorer, dtype = head_for(model, rows), rows.dtype
        if drawn.shared and not torch.is_grad_enabled():
            # A product of matrices and a sum per pair round differently: ends alike tie once rounded.
            scorer, rows = deepcopy(scorer).double(), rows.double()
        heads, tails = rows_at(rows, src), rows_at(rows, dst)
        relation = None if pairs.relation is None else pairs.relation.to(rows.device)
        sides = []
        for index, side in enumerate(how.sides):
            one, other = (heads, dst) if side == "dst" else (tails, src)
            if drawn.shared:
                negatives = scorer.against(one, rows_at(rows, negative), relation, side=side)
                true = scorer(heads, tails, relation, side=side)[:, None]
            else:
                own = negative[index * len(pairs) : (index + 1) * len(pairs)]
                # In one call, whose sums are made alike: else ends that are alike would not tie, and a model
                # that gives all nodes the same row would be ranked by how sums are rounded.
                both = own_scores(scorer, one, rows, torch.cat([other[:, None], own], 1), relation, side)
                true, negatives = both[:, :1], both[:, 1:]
            masked = drawn.masked[index * len(pairs) : (index + 1) * len(pairs)].to(rows.device)
            negatives = negatives.masked_fill(masked, LEFT_OUT)
            if how.name == "hard":
                negatives = negatives.topk(min(how.count or 1, negatives.shape[1]), dim=1).values
            sides.append(torch.cat([true, negatives], 1))
        return torch.cat(sides).to(dtype)

    def penalties(
        self, model: nn.Module, rows: Tensor, src: Tensor, dst: Tensor, pairs: Pairs
    ) -> Tensor | None:
        """Return what is added to the loss of each pair for its size, each side; None where nothing is."""
        if self.penalty is None:
            return None
        scorer, relation = head_for(model, rows), pairs.relation
        relation = None if relation is None else relation.to(rows.device)
        heads, tails = rows_at(rows, src), rows_at(rows, dst)
        sides = (self.penalty.each(scorer, heads, tails, relation, side=end) for end in self.negatives.sides)
        return torch.cat([*sides])

    def corrections(
        self, drawn: Drawn, src: Tensor, dst: Tensor, negative: Tensor, how: Negatives, num_rows: int
    ) -> Tensor:
        """Return what the loss is told of scores: how often a batch has the node of each, or nothing.

        A true pair's end is among the ends of the batch. All are places of `num_rows` rows.
        """
        if drawn.log_q is None or self.loss.name not in CORRECTED:
            return torch.zeros(len(how.sides) * len(src), device=src.device)
        log_q = drawn.log_q.float().to(src.device)
        held, size = [], len(log_q) // len(how.sides)  # columns of each side
        for index, side in enumerate(how.sides):
            columns = slice(index * size, (index + 1) * size)
            of_row = log_q.new_zeros(num_rows).scatter(0, negative[columns], log_q[columns])
            true = of_row[dst if side == "dst" else src]
            held.append(torch.cat([true[:, None], log_q.expand(len(src), -1)], 1))
        return torch.cat(held)

    @property
    def _temporal(self) -> bool:
        """Whether some negatives must have been there at their pair's time."""
        return self.negatives.temporal or self.evaluated.temporal

    @property
    def _excluded(self) -> list[str]:
        """Which known links negatives must be none of."""
        asked = {"all": self.evaluated.exclude or self.evaluated.filtered, "train": self.negatives.exclude}
        return [name for name, needed in asked.items() if needed]

    def _nodes(self, graph: GraphView) -> Nodes:
        """Return what negatives are drawn from: known to every worker by all training pairs alone."""
        train = self.training_pairs()
        kinds = graph.edge_types
        if train.relation is not None:
            kinds = [kinds[number] for number in torch.unique(train.relation).tolist()]
        degrees = ends_of(train.src, train.dst, graph.node_offsets[-1])
        return Nodes.between(graph, kinds, degrees, time=self.node_time)


def _drawn(batch: EdgeBatch) -> Drawn:
    assert batch.masked is not None, "drawn by the task"
    return Drawn(batch.negative, batch.masked, batch.log_q)


def _negatives(given: str | Mapping[str, Any], where: str) -> Negatives:
    options = {"name": given} if isinstance(given, str) else dict(given)
    bound = bind(Negatives, options, where)
    with _named(where):
        return Negatives(**bound)


@contextmanager
def _named(where: str) -> Iterator[None]:
    """Name the option of a recipe in what negatives refuse."""
    try:
        yield
    except InputError as error:
        kind = type(error) if isinstance(error, GraphError) else RecipeError
        raise kind(f"{where}{str(error).removeprefix('negatives')}") from None
