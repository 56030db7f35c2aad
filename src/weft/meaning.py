"""What the numbers of a graph stand for: an extra file beside the arrays of one that came from tables."""

from pathlib import Path
from typing import Any

from weft import format
from weft.errors import FormatError
from weft.reading.json_values import Each, Maybe, parse_json

REPORT = "ingest.json"
"""The extra file that holds classes, names of features and the schema."""
CLASS_NAMES = "class_names"
"""The array of a `.npz` file that holds the names of its classes."""

_NAMES = Maybe(Each([str]))
_SHAPE = {"classes": _NAMES, "edge_classes": _NAMES, "features": _NAMES, "edge_features": _NAMES}


def read_report(path: str | Path) -> dict[str, Any]:
    """Return what the numbers of an ingested graph stand for: classes and feature names by node type.

    Empty where the graph did not come from tables.
    """
    try:
        report: dict[str, Any] = parse_json(format.read_extra(path, REPORT), Path(path) / REPORT, _SHAPE)
        return report
    except FormatError:
        return {}


def meaning_of(path: Path | None) -> dict[str, Any]:
    """Return what a run keeps of it for its graph, by which outputs are told; nothing for other data."""
    if path is not None and path.suffix == ".npz" and path.is_file():
        return _of_npz(path)
    if path is None or not (path / format.MANIFEST).is_file():
        return {}
    report = read_report(path)
    kept = ("classes", "edge_classes", "features", "edge_features")
    return {name: report[name] for name in kept if report.get(name)}


def _of_npz(path: Path) -> dict[str, Any]:
    from weft.reading.arrays import NpzArrays

    try:
        arrays = NpzArrays(path)
        names = arrays[CLASS_NAMES].ravel().tolist() if CLASS_NAMES in arrays else []
    except FormatError:
        return {}  # who reads the graph says what is wrong with the file
    # Whatever the type of the nodes that have labels is called: there is one.
    return {"classes": {"node": [_text(name) for name in names]}} if names else {}


def _text(name: Any) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else str(name)
