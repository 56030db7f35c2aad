"""Link prediction against PyG: the same splits, model, loss and negatives, in the same run.

All train a SAGE of two layers with dot products of rows, on the message graph and the pairs of one split; a
negative is drawn for each true pair in each epoch. All keep the epoch with the best validation MRR and are
scored by the same functions on the same 100 negatives of each test pair, none of them a known link. A seed
gives every contender one split, its pairs and the same first weights: differences are taken seed by seed.
"""

import math
import statistics
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
import torch_geometric
from torch import Tensor, nn

import weft
from benchmarks.cases.epoch import torch_csr
from benchmarks.graphs import real, tiny
from benchmarks.measure import Study
from weft.graph.sparse import SparseFeatures
from weft.tasks.base import EVALUATION, Targets, put_head
from weft.tasks.link_prediction import LinkPrediction
from weft.tasks.ranking import mrr, roc_auc
from weft.train.model import build_model

WIDTH = 64
MODEL = {"hidden": WIDTH, "layers": 2, "dropout": 0.0, "input_dropout": 0.0}
RATE = 0.01


class Plan(NamedTuple):
    """How long a contender is trained, and how often."""

    epochs: int
    every: int = 10
    """Epochs of full graphs between two validations."""
    batched: int = 5
    """Epochs of full graphs for one of batches, which takes many steps."""
    seeds: int = 5


class Result(NamedTuple):
    """What one training came to."""

    mrr: float
    auc: float
    seconds: float
    """Median of an epoch: forward, backward and optimiser."""


Train = Callable[[weft.Graph, dict[str, Any], Plan, int, str], Result]


class PyGNet(nn.Module):
    """Two of PyG's SAGE convolutions with ReLU between them; rows of nodes come out."""

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.first = torch_geometric.nn.SAGEConv(in_features, WIDTH)
        self.last = torch_geometric.nn.SAGEConv(WIDTH, WIDTH)

    def forward(self, x: Tensor, edges: Tensor) -> Tensor:
        h: Tensor = self.last(F.relu(self.first(x, edges)), edges)
        return h


def _ours(
    graph: weft.Graph, split: dict[str, Any], plan: Plan, seed: int, device: str, strategy: str = "single"
) -> Result:
    times = 1 if strategy == "single" else plan.batched
    # Else all runs would be trained on the same draws, and a mean over them would stand for one of these.
    negatives = {"name": "uniform", "count": 1, "seed": seed}
    task = {"name": "link_prediction", "split": split, "width": WIDTH, "negatives": negatives}
    done = weft.train(
        graph, "sage", task=task, strategy=strategy,
        epochs=plan.epochs // times, eval_every=plan.every // times, lr=RATE, seed=seed, device=device,
        **MODEL,
    )  # fmt: skip
    scores = done.metrics["test"]
    return Result(scores["mrr"], scores["roc_auc"], done.epoch_seconds_median)


def _pyg(
    graph: weft.Graph, split: dict[str, Any], plan: Plan, seed: int, device: str, csr: bool = False
) -> Result:
    task = LinkPrediction(split=split, width=WIDTH)
    task.hides(False)  # a share of the pairs are targets and no messages, as with the strategy `single`
    shown = task.prepared(graph)
    targets = task.targets(shown, lambda value: value)
    x = shown.x.to_dense() if isinstance(shown.x, SparseFeatures) else shown.x
    x, edges = x.to(device), (torch_csr(shown) if csr else shown.edge_index).to(device)
    torch.manual_seed(seed)
    model = PyGNet(x.shape[1])
    _take_weights(model, build_model(shown, "sage", MODEL, task=task, seed=seed))
    put_head(task, model, weft.nn.GraphInfo.of(shown), seed=seed)  # a dot product, to be scored alike
    model.to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    src, dst = task.pairs["train"].src.to(device), task.pairs["train"].dst.to(device)
    seconds: list[float] = []
    best, at_best = -math.inf, Result(0.0, 0.0, 0.0)
    for epoch in range(1, plan.epochs + 1):
        start = time.perf_counter()
        negative = torch.randint(graph.num_nodes, (len(src),), device=device)
        h = model(x, edges)
        source = h[src]
        true, false = (source * h[dst]).sum(1), (source * h[negative]).sum(1)
        loss = (F.softplus(-true).mean() + F.softplus(false).mean()) / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        if epoch % plan.every == 0 or epoch == plan.epochs:
            val = mrr(_scores(model, x, edges, targets["val"]))
            if val > best:
                scores = _scores(model, x, edges, targets["test"])
                best, at_best = val, Result(mrr(scores), roc_auc(scores), 0.0)
    return at_best._replace(seconds=statistics.median(seconds))


@torch.no_grad()
def _take_weights(model: PyGNet, ours: nn.Module) -> None:
    """Give PyG's convolutions the first weights of our layers: no draw of them then tells the two apart."""
    weights = ours.state_dict()
    for number, conv in enumerate((model.first, model.last)):
        conv.load_state_dict({name: weights[f"layers.{number}.{name}"] for name in conv.state_dict()})


@torch.no_grad()
def _scores(model: nn.Module, x: Tensor, edges: Tensor, targets: Targets) -> Tensor:
    """Return the scores of pairs and of their negatives, those that weft draws for them."""
    return targets.outputs(model, model(x, edges).cpu(), lambda h, ids: h[ids], EVALUATION)


OURS = "weft, `single`"
CONTENDERS: dict[str, Train] = {
    OURS: _ours,
    "PyG, full graph": _pyg,
    "PyG, full graph, torch CSR": partial(_pyg, csr=True),
    "weft, `sampled`": partial(_ours, strategy="sampled"),
}


def rows(
    name: str, splits: Callable[[int], dict[str, Any]], plan: Plan, device: str = "cpu", columns: int = 0
) -> Iterator[str]:
    """Give one row per contender: both metrics over seeds, and the seconds of an epoch; then their pairs."""
    name, splits = ("cora", _at_random) if tiny() else (name, splits)
    graph = real(name, symmetrise=True, normalise_features=True)  # as in PyG's example of links
    if columns:
        graph = graph.with_data(x=_columns(graph, columns))
    plan = Plan(10, seeds=2) if tiny() else plan
    results: dict[str, list[Result]] = {each: [] for each in CONTENDERS}
    for seed in range(plan.seeds):  # by turns, so that a busy moment hits all
        for each, train in CONTENDERS.items():
            results[each].append(train(graph, splits(seed), plan, seed, device))
    yield "| | test MRR | test ROC-AUC | seconds an epoch |"
    yield "|---|---|---|---|"
    for each, runs in results.items():
        yield f"| {each} | {_cells(_mean, runs)} | {_seconds(runs):.4f} |"
    ours = results.pop(OURS)
    for each, runs in results.items():
        ratio = _seconds(runs) / _seconds(ours)
        yield f"| `single` less {each}, seed by seed | {_cells(_difference, ours, runs)} | {ratio:.1f}× |"
    yield f"| PyG, LinkNeighborLoader | not measured: {_missing()} | | |"


def _cells(told: Callable[..., str], *runs: list[Result]) -> str:
    """Return the cells of both metrics, as `told` puts the values of one or two contenders."""
    mrrs = told(*([result.mrr for result in each] for each in runs))
    return f"{mrrs} | {told(*([result.auc for result in each] for each in runs))}"


def _seconds(runs: list[Result]) -> float:
    return statistics.median(result.seconds for result in runs)


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.4f} ± {_error(values):.4f}"


def _difference(ours: list[float], theirs: list[float]) -> str:
    """Return the mean difference of pairs of runs and its error, smaller than that of either mean."""
    pairs = [a - b for a, b in zip(ours, theirs, strict=True)]
    return f"{statistics.mean(pairs):+.4f} ± {_error(pairs):.4f}"


def _error(values: list[float]) -> float:
    return statistics.stdev(values) / math.sqrt(len(values))


def _columns(graph: weft.Graph, columns: int) -> Tensor:
    """Return so many dense features: of sparse ones by a random map, else random, to tell nodes apart."""
    random = torch.Generator().manual_seed(0)
    if graph.x is None:
        return torch.randn(graph.num_nodes, columns, generator=random)
    dense: Tensor = graph.x.matmul(
        torch.randn(graph.x.shape[1], columns, generator=random) / math.sqrt(columns)
    )
    return dense


def _missing() -> str:
    """Return why PyG's batches of links are not measured."""
    try:
        import pyg_lib  # noqa: F401
    except ImportError:
        return "it needs pyg-lib, which is not installed"
    return "pyg-lib is there, but this case compares full graphs alone"


def _at_random(seed: int) -> dict[str, Any]:
    return {"by": "random", "val": 0.05, "test": 0.1, "seed": seed}


def _later(seed: int) -> dict[str, Any]:
    """The last tenth of the ratings is the test, the tenth before it validation."""
    return {"by": "time", "key": "time", "val": 1_382_700_000, "test": 1_398_300_000, "seed": seed}


def _by_time(seed: int) -> dict[str, Any]:
    return {"by": "time", "key": "year", "val": 2021, "test": 2022, "seed": seed}


def _note(plan: Plan) -> str:
    return (
        "The same message graph, pairs and evaluation negatives for all; 30 % of training pairs are targets "
        "and no messages; `sampled` hides those of a batch instead, trains on all, takes many steps an epoch "
        f"and 1/{plan.batched} of the epochs. ± is the standard error over {plan.seeds} seeds, each with its "
        "own split where random; differences are of runs with one split, pairs and first weights; with them "
        "is the ratio of seconds."
    )


def _study(
    case: str, what: str, name: str, splits: Callable[[int], dict[str, Any]], plan: Plan, **more: Any
) -> Study:
    title = f"link prediction {what}, SAGE 2 x {WIDTH}, dot products, {plan.seeds} seeds, against PyG"
    return Study(
        f"link_prediction_{case}", title, partial(rows, name, splits, plan, **more), note=_note(plan)
    )


# On cora one run differs from the next by more than contenders do: many seeds tell. The coauthors are many.
MANY = Plan(100, seeds=15)
LARGE = Plan(50, every=25, batched=25, seeds=3)
CASES = [
    _study("cora", "on cora", "cora", _at_random, MANY),
    _study("bitcoin", "on later ratings of bitcoin_otc", "bitcoin_otc", _later, Plan(100), columns=64),
    _study(
        "coauthors",
        "on coauthors of later years (71,271 authors)",
        "acl_coauthors",
        _by_time,
        LARGE,
        columns=128,
    ),
]
if torch.cuda.is_available():
    CASES.append(
        _study(
            "coauthors_gpu",
            "on coauthors of later years on a GPU",
            "acl_coauthors",
            _by_time,
            Plan(50),
            device="cuda",
            columns=128,
        )
    )
