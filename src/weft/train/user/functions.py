"""Loss and metrics of the user's own: functions, or names of functions in a recipe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import isclass
from typing import Any

from torch import Tensor, nn

from weft.code import is_code, load_code
from weft.errors import InputError, RecipeError
from weft.tasks.loss import Loss, own_loss
from weft.tasks.metrics import Metric
from weft.train.settings import Settings


@dataclass(frozen=True)
class Own:
    """What of a run's loss and metrics is the user's own code."""

    loss: Loss | None = None
    metrics: Mapping[str, Metric] = field(default_factory=dict)

    @classmethod
    def of(cls, settings: Settings, *, loss: Any = None, metrics: Mapping[str, Any] | None = None) -> "Own":
        """Return the functions that are given, else those that the settings name."""
        named = metrics or {}
        if loss is None and is_code(settings.loss):
            loss = load_code(settings.loss, "train.loss")
        if loss is not None:
            loss = own_loss(settings.loss, _function(loss, "train.loss", "loss(outputs, y)"))
        measured: dict[str, Metric] = {}
        for name, code in (settings.metrics or {}).items():
            where = f"train.metrics.{name}"
            function = named[name] if name in named else load_code(code, where)
            measured[name] = _measured(where, _function(function, where, "metric(outputs, y)"))
        return cls(loss, measured)


def _function(value: Any, where: str, call: str) -> Callable[..., Any]:
    """Return a function; a module that is named by its class is made, as torch.nn.CrossEntropyLoss is."""
    value = value() if isclass(value) and issubclass(value, nn.Module) else value
    if not callable(value):
        raise RecipeError(f"{where}: expected a function {call}, got a {type(value).__name__}")
    function: Callable[..., Any] = value
    return function


def _measured(where: str, function: Callable[..., Any]) -> Metric:
    """Return a metric that gives a number, or says that it did not."""

    def metric(outputs: Tensor, y: Tensor) -> float:
        value = function(outputs, y)
        try:
            return float(value)
        except (TypeError, ValueError, RuntimeError):
            raise InputError(f"{where}: expected one number, got a {type(value).__name__}") from None

    return metric
