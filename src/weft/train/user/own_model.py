"""A model of the user's own class, by its name and options: `[model] class = "my_package.my_module:Net"`.

What the graph decides is given by the names that weft's own layers and PyG's have for it: in_features or
in_channels, out_features or out_channels, and info, a `GraphInfo`. All else is an option; `hops` is one of
every class, how many blocks it takes, where neither its layers nor a trial tell.
"""

from collections.abc import Mapping
from inspect import Parameter, isclass, signature
from typing import Annotated, Any

from torch import nn

from weft.code import load_code
from weft.config import Range, bind, convert
from weft.errors import RecipeError
from weft.layers.base import GraphInfo

_WHERE = "model.class"
Hops = Annotated[int, Range(least=1)]


def load_class(name: str) -> Any:
    """Return the class, or the function, that makes the model of a name."""
    loaded = load_code(name, _WHERE)
    if not callable(loaded) or (isclass(loaded) and not issubclass(loaded, nn.Module)):
        raise RecipeError(f"{_WHERE}: {name} is no torch.nn.Module, nor a function that makes one")
    return loaded


def check_own(name: str, options: Mapping[str, Any], *, where: str = "model") -> dict[str, Any]:
    """Return the options of a class, converted, or raise naming the one that is wrong or missing."""
    kind = load_class(name)
    try:
        return _bound(kind, name, options, where)
    except RecipeError as error:
        if isclass(kind):
            raise
        raise RecipeError(
            f"{_WHERE}: {name} is no torch.nn.Module class, but a function; as one that makes a "
            f"model: {error}"
        ) from None


def _bound(kind: Any, name: str, options: Mapping[str, Any], where: str) -> dict[str, Any]:
    known = signature(kind).parameters
    any_name = any(item.kind is Parameter.VAR_KEYWORD for item in known.values())
    extra = {key: value for key, value in options.items() if any_name and key not in known}
    extra |= {"hops": convert(options["hops"], Hops, f"{where}.hops")} if _says_hops(known, options) else {}
    bound = bind(kind, {key: value for key, value in options.items() if key not in extra}, where)
    for key, item in known.items():
        named = item.kind in (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
        if named and item.default is Parameter.empty and key not in bound and key not in _given(None):
            raise RecipeError(f"{where}.{key}: {name} needs it; set it")
    return {**bound, **extra}


def build_own(name: str, options: Mapping[str, Any], info: GraphInfo) -> nn.Module:
    """Return a new model of a class for a graph."""
    kind = load_class(name)
    known = signature(kind).parameters
    arguments = {key: value for key, value in _given(info).items() if key in known}
    hops = options["hops"] if _says_hops(known, options) else None
    options = {key: value for key, value in options.items() if key != "hops" or hops is None}
    try:
        model = kind(**{**arguments, **options})
    except (TypeError, ValueError) as error:
        raise RecipeError(f"{_WHERE}: {name} cannot be made: {' '.join(str(error).split())}") from error
    if not isinstance(model, nn.Module):
        raise RecipeError(f"{_WHERE}: {name} gave a {type(model).__name__}, expected a torch.nn.Module")
    if hops is not None:
        model.hops = hops
    return model


def say_hops(model: nn.Module, hops: Any) -> None:
    """Have a model say how many hops it takes."""
    model.hops = convert(hops, Hops, "hops")


def _says_hops(known: Mapping[str, Parameter], options: Mapping[str, Any]) -> bool:
    """Return whether `hops` says what the model takes, and is no option of its class."""
    return "hops" in options and "hops" not in known


def _given(info: GraphInfo | None) -> dict[str, Any]:
    """Return what the graph decides, by the names of arguments."""
    if info is None:
        return dict.fromkeys(("in_features", "in_channels", "out_features", "out_channels", "info"))
    widths = info.in_features
    wide = dict(widths) if len(widths) > 1 else next(iter(widths.values()))
    ends = {"in_features": wide, "in_channels": wide}
    return {**ends, "out_features": info.out_features, "out_channels": info.out_features, "info": info}
