"""Writes docs/recipe.md, the keys of a recipe, from the code that checks them: python docs/recipe_page.py"""

import ast
import dataclasses
import inspect
import re
import types
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from weft.config import Range, _parameters, default_of, describe
from weft.datasets import datasets, formats
from weft.datasets.prepare import prepare
from weft.exchanges.base import exchanges
from weft.layers.base import layers
from weft.layers.stack import ACTIVATIONS, Stack
from weft.partitioners import partition
from weft.partitioners.base import partitioners
from weft.registry import Registry
from weft.samplers.base import samplers
from weft.stores.base import stores
from weft.stores.open import open_store, recipe_target
from weft.stores.rankers import rankers
from weft.strategies.base import Strategy, strategies
from weft.strategies.minibatch.sampled import TO_SAMPLER
from weft.tasks.base import tasks
from weft.tasks.negatives import Negatives
from weft.tasks.pairs import split_options
from weft.tasks.scores import scorers
from weft.train.resolve import ALONE, SEVERAL
from weft.train.settings import Settings

PAGE = Path(__file__).with_name("recipe.md")
COMMAND = "python docs/recipe_page.py"
HEAD = f"""# All keys of a recipe

A recipe is TOML with the sections `[data]`, `[task]`, `[model]`, `[strategy]` and `[train]`; `weft train
--set section.key=value` sets one key. This page is made from the code that checks recipes, by
`{COMMAND}`. A key that is unknown, of another type or out of range is refused in one line.
No default: the key is needed, or nothing is set.

`exchange`, `partitioner`, `sampler` and `store` are a name, or a table with a name and options:
`strategy.exchange = {{name = "sampled", p = 0.1}}`, or `--set strategy.exchange.name=sampled
--set strategy.exchange.p=0.1`.
"""
# What the trainer gives to a strategy, the strategy to an exchange or a sampler, the graph to a model.
TO_STRATEGY = (*inspect.signature(Strategy).parameters, "part_rank", "speed", "whole")
TO_EXCHANGE = ("plan", "group", "clock")
TO_MODEL = ("in_features", "out_features", "info", "layer", "options")


def page() -> str:
    """Return the whole page."""
    return "\n".join([HEAD, *_data(), *_task(), *_model(), *_strategy(), *_train()]).rstrip("\n") + "\n"


def _data() -> Iterator[str]:
    yield "## [data]\n"
    yield f"`path` is a file or folder, `name` a generator or reader: {_names(datasets)}."
    yield "Default: `community`."
    known = [(formats[name].__doc__ or "").strip().rstrip(".") for name in formats.names()]
    yield "A path is recognised: " + "; ".join(each[:1].lower() + each[1:] for each in known) + ".\n"
    yield from _entry("Whatever the source", [prepare], given=("graph",), level=3)
    yield from _entries(datasets, given=("path",))


def _task() -> Iterator[str]:
    yield f"## [task]\n\n`name` is what is learned ([Tasks](tasks.md)): {_names(tasks)}. Without it the labels of nodes decide."
    yield "`loss` is one of its losses, the first unless it is named.\n"
    for name in tasks.names():
        yield from _entry(f"`{name}`", [tasks[name]], given=("loss",))
        yield "Losses: " + ", ".join(f"`{each}`" for each in tasks[name].losses) + "."
        told = tasks[name].metric
        yield (
            "Metrics: " + ", ".join(f"`{each}`" for each in tasks[name].metrics) + f"; judged by `{told}`.\n"
        )
    yield from _entry("task.split", [split_options], given=(), level=3)
    yield from _entry("task.negatives, task.evaluate", [Negatives], given=(), level=3)
    yield "### task.score\n"
    yield from _entries(scorers, given=("width", "num_relations"))


def _model() -> Iterator[str]:
    yield f"## [model]\n\n`name` is a layer: {_names(layers)}. Without it, `sage`."
    yield 'Or `class` is a model of your own, `"my_package.my_module:Net"`; its keys are then the arguments of that'
    yield "class, and `hops` ([Your own model](your-own-model.md)).\n"
    yield from _entry("Whatever the layer", [Stack], given=TO_MODEL, level=3)
    yield f"`activation` is one of {', '.join(f'`{name}`' for name in ACTIVATIONS)}.\n"
    for name in layers.names():
        kind = layers[name]
        yield from _entry(f"`{name}`", [kind.stacked, kind], given=(*TO_MODEL, *_parameters([Stack])))


def _strategy() -> Iterator[str]:
    yield f"## [strategy]\n\n`name` is one of {_names(strategies)}."
    yield f"Default: `{ALONE}`, and `{SEVERAL}` with several workers or parts.\n"
    yield from _abilities()
    yield from _entries(strategies, given=TO_STRATEGY)
    yield "### strategy.exchange\n"
    yield from _entries(exchanges, given=TO_EXCHANGE)
    yield "### strategy.partitioner\n"
    yield from _entry("Whatever the partitioner", [partition], given=("graph", "num_parts", "name", "watch"))
    yield from _entries(partitioners, given=("seed",))
    yield "### strategy.sampler\n"
    yield from _entries(samplers, given=TO_SAMPLER, only=lambda kind: kind.neighbourhoods)
    yield "### strategy.store\n"
    yield _prose(open_store, []) + "\n"
    yield from _stores()
    yield f"`ranker` is one of {_names(rankers)}.\n"


def _stores() -> Iterator[str]:
    """Give what each store that a recipe may name says of itself, and its options."""
    named = [name for name in stores.names() if stores[name].by_recipe]
    yield "| store | gives rows on | several workers | can be written | holds rows of another |"
    yield "|---|---|---|---|---|"
    for name in named:
        kind = stores[name]
        marks = ("yes" if able else "–" for able in (kind.on_workers, kind.writable, kind.caches))
        yield f"| `{name}` | {' | '.join([', '.join(kind.devices), *marks])} |"
    yield ""
    for name in named:
        target, provided = recipe_target(stores[name])
        yield from _entry(f"`{name}`", [target], given=provided)


def _abilities() -> Iterator[str]:
    """Give the table of what each strategy says of itself."""
    yield "| strategy | trains on | one process on | several workers on | exchanges |\n|---|---|---|---|---|"
    for name in strategies.names():
        kind = strategies[name]
        takes = "exchange" in _parameters([kind])
        workers = kind.worker_devices if kind.on_workers else ()
        listed = (kind.over, kind.devices, workers, kind.exchanges if takes else ())
        yield f"| `{name}` | {' | '.join(', '.join(each) or '–' for each in listed)} |"
    far = [f"`{name}`" for name in exchanges.names() if "cuda" in exchanges[name].devices]
    yield f"\nSeveral workers on `cuda` use the exchange {' or '.join(far)}.\n"


def _train() -> Iterator[str]:
    yield "## [train]\n\n| key | accepts | default | |\n|---|---|---|---|"
    told = _field_lines(Settings)
    for field in dataclasses.fields(Settings):
        annotation = _parameters([Settings])[field.name]
        yield f"| `{field.name}` | {_accepts(annotation)} | {_value(field.default)} | {told[field.name]} |"


def _entries(
    registry: Registry[Any], *, given: Sequence[str], only: Callable[[Any], bool] = lambda _: True
) -> Iterator[str]:
    """Give a part of the page for every entry; names of the same entry come together."""
    chosen = [name for name in registry.names() if only(registry[name])]
    for entry in dict.fromkeys(registry[name] for name in chosen):
        names = [f"`{name}`" for name in chosen if registry[name] is entry]
        yield from _entry(", ".join(names), [entry], given=given)


def _entry(title: str, targets: list[Any], *, given: Sequence[str], level: int = 4) -> Iterator[str]:
    keys = {name: kind for name, kind in _parameters(targets).items() if name not in given}
    yield f"{'#' * level} {title}\n"
    yield _prose(targets[-1], list(keys)) + "\n"
    if keys:
        yield "| key | accepts | default |\n|---|---|---|"
        yield from (
            f"| `{key}` | {_accepts(kind)} | {_value(_default(targets, key))} |" for key, kind in keys.items()
        )
        yield ""


def _accepts(annotation: Any) -> str:
    """Return what a key accepts, in words."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return " ".join(
            [_accepts(arguments[0]), *(str(each) for each in arguments[1:] if isinstance(each, Range))]
        )
    if origin in (Union, types.UnionType):
        return " or ".join(_accepts(each) for each in arguments if each is not type(None))
    if origin is Literal:
        return ", ".join(f"`{each}`" for each in arguments)
    return "anything" if annotation is Any else describe(annotation)


def _default(targets: list[Any], key: str) -> Any:
    told = (default_of(target, key) for target in targets)
    return next((value for value in told if value is not None), None)


def _value(value: Any) -> str:
    if value is None or value is inspect.Parameter.empty:
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{list(value) if isinstance(value, tuple) else value}`"


def _prose(target: Any, keys: list[str]) -> str:
    """Return the first paragraph of a docstring, and those that speak of a key; examples are left out."""
    text = inspect.cleandoc(target.__doc__ or "")
    paragraphs = [
        " ".join(part.split()) for part in re.split(r"\n\s*\n", text) if not part.startswith((" ", ">>>"))
    ]
    kept = [part for part in paragraphs[1:] if not keys or any(f"`{key}" in part for key in keys)]
    told = "\n\n".join([*paragraphs[:1], *kept])
    return re.sub(r"^Return (\w)", lambda found: found[1].upper(), told)


def _field_lines(kind: type) -> dict[str, str]:
    """Return the line under each field of a dataclass."""
    (body,) = [
        node.body for node in ast.parse(inspect.getsource(kind)).body if isinstance(node, ast.ClassDef)
    ]
    return {
        field.target.id: " ".join(ast.literal_eval(line.value).split())
        for field, line in pairwise(body)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(line, ast.Expr)
    }


def _names(registry: Registry[Any]) -> str:
    return ", ".join(f"`{name}`" for name in registry.names())


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
