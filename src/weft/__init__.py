"""weft: graph neural networks on graphs too large for one process.

    import weft

    graph = weft.datasets.open_dataset("cora.npz")
    summary = weft.train(graph, "gcn", hidden=16, epochs=200)
    summary.test_accuracy

Names are resolved on first use: `import weft`, `weft --help` and data workers load no torch. The first use
also sets how the process waits and computes (`weft.process`), where torch is not loaded yet.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from weft import (
        algorithms,
        datasets,
        draw,
        errors,
        kernels,
        layers,
        nn,
        partitioners,
        plan,
        report,
        samplers,
        simulate,
        stores,
        strategies,
    )
    from weft.config import Recipe, read_recipe
    from weft.errors import DataNote, InputError, WeftError, WeftWarning
    from weft.events import read_events
    from weft.graph.graph import Graph
    from weft.graph.message.block import Block
    from weft.graph.message.compiled import compile_messages
    from weft.graph.sparse import SparseFeatures
    from weft.interop.pyg.accelerate import accelerate, accelerated
    from weft.train.explain import explain
    from weft.train.inference.infer import infer
    from weft.train.inference.links import nearest, partners, score_pairs
    from weft.train.launch import train
    from weft.train.saved.summary import Summary

    __version__: str

# Where each public name lives; a name that is its own module's is that module.
_HOME = {
    "Block": "weft.graph.message.block",
    "DataNote": "weft.errors",
    "Graph": "weft.graph.graph",
    "InputError": "weft.errors",
    "Recipe": "weft.config",
    "SparseFeatures": "weft.graph.sparse",
    "Summary": "weft.train.saved.summary",
    "WeftError": "weft.errors",
    "WeftWarning": "weft.errors",
    "accelerate": "weft.interop.pyg.accelerate",
    "accelerated": "weft.interop.pyg.accelerate",
    "algorithms": "",
    "compile_messages": "weft.graph.message.compiled",
    "datasets": "",
    "draw": "",
    "errors": "",
    "explain": "weft.train.explain",
    "infer": "weft.train.inference.infer",
    "kernels": "",
    "layers": "",
    "nn": "",
    "nearest": "weft.train.inference.links",
    "partitioners": "",
    "partners": "weft.train.inference.links",
    "plan": "",
    "read_events": "weft.events",
    "read_recipe": "weft.config",
    "report": "",
    "samplers": "",
    "score_pairs": "weft.train.inference.links",
    "simulate": "",
    "stores": "",
    "strategies": "",
    "train": "",
}

__all__ = [
    "Block",
    "DataNote",
    "Graph",
    "InputError",
    "Recipe",
    "SparseFeatures",
    "Summary",
    "WeftError",
    "WeftWarning",
    "__version__",
    "accelerate",
    "accelerated",
    "algorithms",
    "compile_messages",
    "datasets",
    "draw",
    "errors",
    "explain",
    "infer",
    "kernels",
    "layers",
    "load",
    "nearest",
    "nn",
    "partitioners",
    "partners",
    "plan",
    "read_events",
    "read_recipe",
    "report",
    "samplers",
    "score_pairs",
    "simulate",
    "stores",
    "strategies",
    "train",
]


def load(path: "str | os.PathLike[str]", verify: bool = True) -> "Graph":
    """Return the graph that `graph.save` wrote, mapped from its files; `verify` compares checksums first."""
    from weft.graph.graph import Graph

    return Graph.load(path, verify=verify)


def draw_report(out: "str | os.PathLike[str]") -> None:
    """Draw the report of a run: what `weft.train` does after it."""
    from weft.report import write_report

    write_report(os.fspath(out))


def check_room(resolved: Any, held: Any, workers: int = 1) -> None:
    """Refuse a run that will not fit into memory; `held` is its graph, or the folder of its parts."""
    from weft.plan.room import check_graph, check_parts

    if workers > 1:
        check_parts(resolved, held, workers)
    else:
        check_graph(resolved, held)


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    _prepare()
    home = _HOME[name]
    return getattr(import_module(home), name) if home else import_module(f"{__name__}.{name}")


def _prepare() -> None:
    """Set how the process waits and computes, once, before the first use of weft brings torch."""
    if "torch" not in sys.modules:
        from weft import process

        process.prepare()


def __dir__() -> list[str]:
    return __all__


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("weft")
    except PackageNotFoundError:  # run from a source tree that was never installed
        return "0+unknown"
