"""The settings of a training run: the keys of `[train]` in a recipe, and keywords of `weft.train`."""

import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import nn

from weft.code import is_code
from weft.config import Range
from weft.errors import DataNote, RecipeError
from weft.strategies.learned import RowOptimizerName
from weft.tasks.base import Task, head_of
from weft.tasks.choose import known_metrics
from weft.train.optim import OptimizerName, Schedule, ScheduleName, make_optimizer
from weft.train.saved.prices import Prices, read_prices

Count = Annotated[int, Range(least=1)]
BestBy = Literal["metric", "loss"]
Precision = Literal["float32", "float64", "bfloat16", "float16"]
AUTOCAST: dict[Precision, torch.dtype] = {"bfloat16": torch.bfloat16, "float16": torch.float16}
"""The type of matrix products where it is not that of the weights."""


@dataclass(frozen=True)
class Settings:
    """How to train. Each field is a key of `[train]` and a keyword of `weft.train`."""

    epochs: Count = 200
    """Passes over the training nodes, at most."""
    lr: Annotated[float, Range(above=0)] = 0.01
    """Learning rate at the start."""
    optimizer: OptimizerName = "adam"
    """adam, adamw or sgd."""
    momentum: Annotated[float, Range(least=0, below=1)] = 0.0
    """Momentum of sgd."""
    weight_decay: Annotated[float, Range(least=0)] = 0.0
    """L2 penalty of adam and sgd, decoupled decay of adamw."""
    rows_optimizer: RowOptimizerName | None = None
    """Of learned rows, of which a step changes those it read: adam, adagrad, rowwise_adagrad (one number of
    state a row) or sgd, without weight decay; none takes adam, or sgd beside optimizer = "sgd"."""
    rows_lr: Annotated[float, Range(above=0)] | None = None
    """Learning rate of learned rows at the start; none takes lr."""
    schedule: ScheduleName | None = None
    """cosine, step or plateau; none keeps the rate."""
    schedule_every: Count = 50
    """Epochs of a step, or without improvement on a plateau."""
    schedule_factor: Annotated[float, Range(above=0, below=1)] = 0.5
    """What step and plateau multiply the rate with."""
    patience: Count | None = None
    """Stop after this many epochs without improvement on the validation nodes; none trains to the end."""
    metric: str = "auto"
    """The best epoch is highest in it. accuracy, micro_f1 (auto where nodes have several labels), macro_f1,
    roc_auc, or one of metrics."""
    metrics: Mapping[str, str] | None = None
    """Metrics of your own by their names: functions (outputs, y) to a number, as "module:function"."""
    best_by: BestBy = "metric"
    """metric, or loss: the best epoch is then that of the lowest validation loss."""
    loss: str = "auto"
    """cross_entropy, or bce where a node has several labels; or a function of your own, "module:function"."""
    restore_best: bool = True
    """Return the weights of the best epoch on the validation nodes rather than the last."""
    seed: Annotated[int, Range(least=0, below=2.0**63)] = 0
    """Seed of the first weights and of every random draw."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:1."""
    precision: Precision = "float32"
    """float32, float64, or bfloat16 or float16 (with a loss scale) for the products of float32 weights."""
    eval_every: Count = 1
    """Epochs between evaluations."""
    checkpoint_every: Count | None = None
    """Epochs between checkpoints; none writes one about every ten seconds."""
    tensorboard: bool = False
    """Also write TensorBoard files into the run folder."""
    trace: bool = False
    """Also write trace.json, a Chrome trace of every phase, into the run folder."""
    prices: str | None = None
    """Your own table of prices, a TOML file with [cluster.prices]: the run then tells dollars and value."""
    placement: Literal["usual", "measured"] = "usual"
    """Who holds which part: usual is in order, or as deal.json beside the parts says; measured: as ends the
    busiest link first, by speeds of links that are measured once."""

    def known_prices(self) -> Prices | None:
        """Return what the table of prices says, or refuse it; None without one."""
        return None if self.prices is None else read_prices(self.prices)

    def __post_init__(self) -> None:
        if self.momentum and self.optimizer != "sgd":
            raise RecipeError(f"train.momentum: {self.optimizer!r} takes none; use optimizer = 'sgd'")
        _check_names(self)

    def make_optimizer(self, parameters: Sequence[nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimiser of those of these parameters that train."""
        how = {"lr": self.lr, "weight_decay": self.weight_decay, "momentum": self.momentum}
        return make_optimizer(self.optimizer, parameters, **how)

    def make_schedule(self) -> Schedule:
        """Return the learning rate as a function of the epoch."""
        every, factor = self.schedule_every, self.schedule_factor
        return Schedule(self.schedule, lr=self.lr, epochs=self.epochs, every=every, factor=factor)


# Settings that may change between a run and its continuation: they do not change what is computed.
FREE_ON_RESUME = ("epochs", "checkpoint_every", "tensorboard", "trace", "prices")


def check_validation(settings: Settings, splits: Iterable[str], task: Task) -> None:
    """Refuse settings that go by validation targets where there are none."""
    if "val" in [*splits]:
        return
    for asked, name in (
        (settings.patience is not None, "patience"),
        (settings.schedule == "plateau", "schedule"),
        (settings.restore_best and settings.metric != "auto", "metric"),
        (settings.restore_best and settings.best_by == "loss", "best_by"),
    ):
        if asked:
            raise RecipeError(
                f"train.{name}: goes by validation targets, and there are none; leave it out, or give some: "
                f"{task.split_by.format('val')}"
            )


def check_precision(settings: Settings, task: Task, model: nn.Module) -> None:
    """Refuse float16 with a head that learns: gradients are scaled where the model's rows end."""
    head = head_of(model)
    if settings.precision == "float16" and head is not None and any(True for _ in head.parameters()):
        raise RecipeError(
            f"train.precision: float16 has no scale for what {task.name!r} learns beside the model; use "
            "bfloat16 or float32"
        )


def note_empty(splits: Iterable[str]) -> None:
    """Tell what a run does without validation or test targets."""
    done = {"val": "the weights of the last epoch are kept", "test": "the end of the run is not tested"}
    words = {"val": "validation", "test": "test"}
    empty = [name for name in done if name not in [*splits]]
    if empty:
        lines = "; ".join(f"no {words[name]} targets: {done[name]}" for name in empty)
        warnings.warn(lines, DataNote, stacklevel=3)


def _check_names(settings: Settings) -> None:
    """Refuse metrics of the user's own under names that weft has, or that are no functions."""
    for name, code in (settings.metrics or {}).items():
        if name in ("auto", "loss", *known_metrics()):
            raise RecipeError(f"train.metrics.{name}: weft has that name already; choose another")
        if not is_code(code):
            raise RecipeError(f"train.metrics.{name}: expected a function as 'module:function', got {code!r}")


def choose_metric(name: str, task: Task) -> str:
    """Return the metric that the best epoch is judged by."""
    return task.metric if name == "auto" else name


def choose_device(name: str) -> torch.device:
    """Return the device to train on, or refuse one that this machine does not have."""
    if name != "cpu" and torch.cuda._is_in_bad_fork():
        raise RecipeError(
            "train.device: this process was forked from one that had begun to use a GPU, and cannot use any; "
            "start it by spawn (multiprocessing.get_context('spawn')), fork before the GPU is used, or train "
            "on 'cpu'"
        )
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise RecipeError(f"train.device: expected auto, cpu, cuda or cuda:N, got {name!r}") from None
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if device.type == "cuda" and (device.index or 0) >= count:
        raise RecipeError(
            f"train.device: {name!r} is not there; this machine has {count or 'no'} CUDA "
            f"device{'' if count == 1 else 's'}, use {'cuda:0' if count else 'cpu'!r}"
        )
    if device.type not in ("cpu", "cuda") or (device.type == "cpu" and device.index):
        raise RecipeError(f"train.device: {name!r} is not supported; use 'cpu' or 'cuda'")
    return device
