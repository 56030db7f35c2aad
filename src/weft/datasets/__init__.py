"""Data sets: files in the usual formats, and generators, each a function that returns a `Graph`.

`open_dataset` takes a path and sees what is there, or takes a name and its options. Adding a format is one
file with a function entered in `datasets` and, where a path can be recognised, a test of the path entered in
`formats`. Nothing is downloaded, and nothing is ever unpickled.
"""

from collections.abc import Callable, Mapping
from inspect import signature
from pathlib import Path
from typing import Any

from weft.config import bind
from weft.errors import FormatError, RecipeError
from weft.format import as_path
from weft.graph.graph import Graph
from weft.reading.damage import reading
from weft.registry import Registry

__all__ = ["datasets", "formats", "open_dataset", "recognise"]

# The keyword arguments of an entry are the settings that a recipe's [data] section may have.
datasets: Registry[Callable[..., Graph]] = Registry("dataset", "weft.datasets")

# For the entries that read a path: whether a path is theirs. The docstring says what is looked for.
formats: Registry[Callable[[Path], bool]] = Registry("format", "weft.datasets")


def open_dataset(path: str | Path | None = None, *, name: str | None = None, **options: Any) -> Graph:
    """Return the graph at a path, or the named data set, made ready to train on.

    `options` are those of the data set (`datasets[name]`) and those that all have (`prepare`): `symmetrise`,
    `inverse_relations`, `self_loops`, `normalise_features`, `train_fraction`, `val_fraction`, `split_seed`.

        open_dataset("cora.npz", normalise_features=True)
        open_dataset(name="community", num_nodes=10_000, seed=3)
    """
    from weft.datasets.prepare import prepare

    if path is None and name is None:
        raise RecipeError("no data: give data.path (a file or folder) or data.name (a generator)")
    path = None if path is None else as_path(path)
    name = name if name is not None else recognise(path or Path("."))
    entry = datasets[name]
    own, common = _split_options(entry, prepare, options, path=path, name=name)
    if path is None:
        return prepare(entry(**own), **common)
    with reading(path):
        graph = entry(path, **own)
    return prepare(graph, **common)


def recognise(path: Path) -> str:
    """Return the name of the data set reader that a path is for."""
    if not path.exists():
        raise FormatError(f"{path}: no such file or folder")
    for name in formats.names():
        if formats[name](path):
            return name
    if (path / "partition.json").is_file():
        raise FormatError(f"{path}: a graph in parts; train on it with `weft train --set data.path={path}`")
    looked_for = "; ".join((formats[name].__doc__ or name).rstrip(".") for name in formats.names())
    hint = ""
    if path.suffix in (".pt", ".pth", ".pkl", ".pickle"):
        hint = " (pickles are never opened: load it yourself, then Graph.from_pyg(data).save(folder))"
    raise FormatError(f"{path}: not a data set that weft knows{hint}; looked for: {looked_for}")


def _split_options(
    entry: Callable[..., Graph],
    prepare: Callable[..., Graph],
    options: Mapping[str, Any],
    *,
    path: str | Path | None,
    name: str,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the options of the data set and those that are common to all, each checked and converted."""
    parameters = signature(entry).parameters
    positional = next(iter(parameters), None)
    reads_path = positional == "path"
    if reads_path and path is None:
        raise RecipeError(f"data set {name!r} takes data.path, the file or folder to read")
    if not reads_path and path is not None:
        raise RecipeError(
            f"data set {name!r} takes no data.path: it is generated; give one of data.path and data.name"
        )
    bound = bind([entry, prepare], options, "data", given=("path", "graph"))
    own = {key: value for key, value in bound.items() if key in parameters}
    return own, {key: value for key, value in bound.items() if key not in own}
