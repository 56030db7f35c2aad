"""A sensible reading of tables that come without a schema, by the names and types of their columns."""

from collections.abc import Sequence
from dataclasses import replace

from weft.pipeline.engines.base import name
from weft.pipeline.ingest.files import BIG, BOOL, INTEGER, LIST, REAL, TEXT, TIME
from weft.pipeline.ingest.problems import Problems
from weft.pipeline.ingest.sources import TableFiles
from weft.pipeline.schema import EdgeTable, Feature, NodeTable

_ID = ("id", "node_id", "nodeid", "node", "key", "uid", "uuid", "name")
_SRC = ("src", "source", "from", "head", "u", "src_id", "source_id", "from_id", "start", "subject")
_DST = (
    "dst",
    "target",
    "to",
    "tail",
    "v",
    "dst_id",
    "target_id",
    "to_id",
    "dest",
    "destination",
    "end",
    "object",
)
_RELATION = ("relation", "rel", "predicate", "edge_type", "r", "p")
HEADER = (_SRC, _DST)
"""Names of which the first line of a file of triples has one each, if it is a header."""
_LABEL = ("label", "labels", "y", "class", "target")
_SPLIT = ("split", "set", "subset", "fold")
_WEIGHT = ("weight", "weights", "w")
_TIME = ("time", "timestamp", "ts", "date", "datetime", "created_at", "t")
_NUMBERS = (INTEGER, BIG, REAL, BOOL)


def complete_nodes(kind: str, table: NodeTable, source: TableFiles, problems: Problems) -> NodeTable:
    """Return the table with what it leaves open filled in; a section says all but the id itself."""
    names = (*_ID[:1], f"{kind}_id", f"{kind}id", *_ID[1:])
    key = table.id or _find(source, names) or next(iter(source.kinds), None)
    said = not table.guess
    table = replace(table, id=key, guess=False)
    if said:
        return replace(table, features=table.features or [])
    label = _find(source, _LABEL, (INTEGER, BIG, BOOL, TEXT, LIST))
    fractions = _find(source, _LABEL, (REAL,)) if label is None else None
    if fractions is not None and _all_whole(source, fractions):  # 1.0: whole numbers with gaps, of pandas
        label, fractions = fractions, None
    if fractions is not None:
        message = "holds fractions, which are no classes, and is left out; name it in features to use it"
        problems.add("warning", "label-fractions", source.table, message, column=fractions)
    split, splitting = _split(source)
    time = _find_role(source, _TIME, (TIME,))
    used = {key, label, fractions, time, *splitting}
    features = _features(source, used, problems)
    return replace(table, features=features, label=label, split=split, time=time)


def complete_edges(table: EdgeTable, source: TableFiles, problems: Problems) -> EdgeTable:
    """Return the table with what it leaves open filled in; a section says all but the ends themselves."""
    columns = list(source.kinds)
    src = table.src or _find(source, _SRC)
    dst = table.dst or _find(source, _DST)
    relation = table.relation if table.relation != "" else _find(source, _RELATION)
    many = table.relation is not None
    if (src is None or dst is None or (many and relation is None)) and len(columns) >= 2 + many:
        rest = [column for column in columns if column not in (src, dst, relation)]
        src = src or rest.pop(0)
        relation = relation or (rest.pop(0) if many else None)
        dst = dst or rest.pop(0)
    said = not table.guess
    header = False if many and source.unnamed else table.header
    table = replace(table, src=src, dst=dst, relation=relation, header=header, guess=False)
    if many and None in (src, dst, relation):
        message = f"triples need a head, a relation and a tail; the columns are: {', '.join(columns)}"
        problems.add("error", "no-column", source.table, message)
    if said:
        return replace(table, features=table.features or [])
    weight = _find_role(source, _WEIGHT, _NUMBERS)
    time = _find_role(source, _TIME, (TIME, INTEGER, REAL))
    own = _find(source, ("id", "edge_id"))
    label = _edge_label(source, {src, dst})
    split, splitting = _split(source)
    if many and split is None and source.unnamed and len(columns) == 4:
        split, splitting = columns[3], [columns[3]]
    split = None if table.file_splits else split
    used = {
        src,
        dst,
        relation,
        weight,
        time,
        own,
        *splitting,
        label if isinstance(label, str) else (label or {}).get("column"),
    }
    features = _features(source, used, problems)
    return replace(table, features=features, weight=weight, time=time, label=label, split=split)


def _edge_label(source: TableFiles, ends: set[str | None]) -> str | dict[str, str] | None:
    """Return the column to predict of edges: classes, or numbers where they have fractions."""
    names = [word for word in _LABEL if _find(source, (word,)) not in ends]
    label = _find(source, names, (INTEGER, BIG, BOOL, TEXT, LIST, REAL))
    if label is None or source.kinds[label] != REAL or _all_whole(source, label):
        return label
    return {"column": label, "encode": "number"}


def _split(source: TableFiles) -> tuple[str | dict[str, str] | None, list[str]]:
    """Return a column of words or columns of booleans that tell a split, and all columns used for it."""
    masks = {part: _find(source, (f"{part}_mask",), _NUMBERS) for part in ("train", "val", "test")}
    held = {part: column for part, column in masks.items() if column is not None}
    words = _find(source, _SPLIT, (TEXT,))
    return words or held or None, [*held.values(), *([] if words is None else [words])]


def _find(source: TableFiles, names: Sequence[str], kinds: Sequence[str] | None = None) -> str | None:
    by_name = {column.lower(): column for column in source.kinds}
    for wanted in names:
        column = by_name.get(wanted)
        if column is not None and (kinds is None or source.kinds[column] in kinds):
            return column
    return None


def _find_role(source: TableFiles, names: Sequence[str], kinds: Sequence[str]) -> str | None:
    """Return the column of a weight or a time, also where some values are none: those are errors then."""
    found = _find(source, names, kinds)
    column = _find(source, names, (TEXT,)) if found is None else None
    if column is not None and source.likely.get(column) in kinds:
        source.kinds[column], found = source.likely[column], column
    return found


def _all_whole(source: TableFiles, column: str) -> bool:
    value = f"TRY_CAST({name(column)} AS DOUBLE)"
    rows = source.scan({"value": value}, position=False)
    return not source.engine.value(f"SELECT count(*) FROM ({rows}) WHERE value <> floor(value)")


def _features(source: TableFiles, used: set[str | None], problems: Problems) -> list[Feature]:
    """Return the columns that hold numbers; others are left out, and it is said which."""
    found = []
    for column, kind in source.kinds.items():
        if column in used:
            continue
        number = kind in _NUMBERS or column in source.mostly_numbers
        if kind == LIST or (number and not column.lower().endswith("_id")):
            found.append(Feature(column, "list" if kind == LIST and source.is_text else None))
            continue
        hint = 'name it in features with encode = "one-hot" or "index" to use it'
        hint = 'give it as "time" in a schema to use it' if kind == TIME else hint
        why = "looks like an id" if number else f"holds {kind}"
        problems.add("note", "left-out", source.table, f"{why} and is left out; {hint}", column=column)
    return found
