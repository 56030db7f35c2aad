"""What the columns of a user's tables mean: a TOML file, or a guess that can be saved as one.

[nodes.person]
files = ["people/*.parquet"]
id = "id"
features = ["age", "embedding", { column = "city", encode = "one-hot" }]
label = "job"
split = "split"

[edges.knows]
source = "person"
target = "person"
files = ["knows.csv"]
src = "from"
dst = "to"
weight = "strength"

[edges.facts]
source = "entity"
target = "entity"
files = ["train.tsv", "test.tsv"]
src = "head"
dst = "tail"
relation = "relation"
file_splits = ["train", "test"]
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, cast

from weft.config import bind, to_toml
from weft.errors import RecipeError
from weft.reading.toml_values import parse_toml

EdgeType = tuple[str, str, str]
Encoding = Literal["number", "list", "one-hot", "index"]
SPLITS = ("train", "val", "test")
_NO_DELIMITER = '"\r\n\0'
SPLIT_WORDS = {
    "train": ("train", "training"),
    "val": ("val", "valid", "validation", "dev"),
    "test": ("test", "testing"),
}
"""How each split may be written."""


@dataclass(frozen=True)
class Feature:
    """One column of features and how it becomes numbers; None: as the column is."""

    column: str
    encode: Encoding | None = None


@dataclass(frozen=True)
class Table:
    """What node and edge tables have in common."""

    files: list[str] = field(default_factory=list)
    features: list[Any] | None = None
    """Columns, or tables of a column and its encoding; None: those that look like features."""
    time: str | None = None
    header: bool | None = None
    """Of text files; None: a first line of numbers only is no header."""
    delimiter: str | None = None
    null: list[str] = field(default_factory=lambda: [""])
    """Words that mean "no value" in text files."""
    guess: bool = False
    """Whether everything is to be guessed: there is no section for this table."""


@dataclass(frozen=True)
class NodeTable(Table):
    """A table of nodes of one type."""

    id: str | None = None
    label: str | None = None
    split: str | dict[str, str] | None = None
    """A column of words, or a table of three columns of booleans: {train = "a", val = "b", test = "c"}."""


@dataclass(frozen=True)
class EdgeTable(Table):
    """A table of edges of one relation."""

    source: str = "node"
    target: str = "node"
    src: str | None = None
    dst: str | None = None
    weight: str | None = None
    label: str | dict[str, str] | None = None
    """What is to be predicted: classes, or numbers with {column = "rating", encode = "number"}."""
    split: str | dict[str, str] | None = None
    """As that of nodes."""
    relation: str | None = None
    """The column that names the relation of each row, of a table with many; "": to be found."""
    file_splits: list[str] | None = None
    """The split of each of `files`, where files tell it: "train", "val" or "test"."""

    def label_feature(self, where: str) -> Feature | None:
        """Return the column to predict and how it is read, checked."""
        if self.label is None or isinstance(self.label, str):
            return None if self.label is None else Feature(self.label)
        message = '{ column = "rating", encode = "number" } or "index"'
        if "column" not in self.label or self.label.get("encode") not in (None, "number", "index"):
            raise RecipeError(f"{where}.label: expected a column, or {message}, got {self.label!r}")
        return Feature(**bind(Feature, self.label, f"{where}.label"))


@dataclass
class Schema:
    """All tables of a graph."""

    nodes: dict[str, NodeTable] = field(default_factory=dict)
    edges: dict[EdgeType, EdgeTable] = field(default_factory=dict)

    def to_toml(self) -> str:
        """Return the schema as the text of a TOML file."""
        sections = {f"nodes.{_key(kind)}": _section(table) for kind, table in self.nodes.items()}
        for (source, relation, target), edges in self.edges.items():
            same = [kind for kind in self.edges if kind[1] == relation]
            key = relation if len(same) == 1 and "." not in relation else f"{source}.{relation}.{target}"
            sections[f"edges.{_key(key)}"] = _section(edges)
        return to_toml(sections)


def features_of(table: Table, where: str) -> list[Feature]:
    """Return the features that a section names, each checked."""
    found = []
    for given in table.features or []:
        if isinstance(given, str):
            found.append(Feature(given))
        elif isinstance(given, Feature):
            found.append(given)
        elif isinstance(given, Mapping) and "column" in given:
            found.append(Feature(**bind(Feature, given, f"{where}.features")))
        else:
            message = 'a column or { column = "city", encode = "one-hot" }'
            raise RecipeError(f"{where}.features: expected {message}, got {given!r}")
    return found


def read_schema(path: str | Path) -> Schema:
    """Return the schema of a TOML file; its paths count from the folder of the file."""
    path = Path(path)
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise RecipeError(f"no schema {path}; --save-schema writes one to start from") from None
    except OSError as error:
        raise RecipeError(f"schema {path}: {error.strerror}") from None
    return parse_schema(parse_toml(data, f"schema {path}"), str(path), base=path.parent)


def parse_schema(given: Mapping[str, Any], where: str, *, base: Path | None = None) -> Schema:
    """Return the schema that sections describe; unknown keys are refused with the nearest known."""
    schema = Schema()
    for part, tables in given.items():
        if part not in ("nodes", "edges") or not isinstance(tables, Mapping):
            raise RecipeError(f"{where}: expected sections [nodes.TYPE] and [edges.RELATION], got {part!r}")
        for key, section in tables.items():
            if not isinstance(section, Mapping):
                raise RecipeError(
                    f"{where}: {part}.{key}: expected a section [{part}.{key}], got {section!r}"
                )
            _add(schema, part, key, dict(section), f"{part}.{key}", base)
    return schema


def add_files(schema: Schema, arguments: Sequence[str]) -> Schema:
    """Return the schema with the files of the command line: nodes=…, edges.knows=…, edges.a.writes.b=…."""
    made = Schema(dict(schema.nodes), dict(schema.edges))
    fresh: set[Any] = set()
    for argument in arguments:
        table, equals, path = argument.partition("=")
        part, _, key = table.partition(".")
        if not equals or part not in ("nodes", "edges", "triples") or not path:
            message = (
                "nodes=FILE, nodes.TYPE=FILE, edges=FILE, edges.SOURCE.RELATION.TARGET=FILE or triples=FILE"
            )
            raise RecipeError(f"{argument}: expected {message}")
        if part == "nodes":
            _set_nodes(made, key, path, fresh)
    for argument in arguments:
        table, _, path = argument.partition("=")
        part, _, key = table.partition(".")
        if part == "edges":
            _set_edges(made, key, path, fresh)
        elif part == "triples":
            _set_triples(made, key, path, argument)
    if not made.nodes and not made.edges:
        raise RecipeError("no tables: give nodes=FILE and edges=FILE, or --schema with files in it")
    return made


def _set_nodes(schema: Schema, key: str, path: str, fresh: set[Any]) -> None:
    kind = key or (next(iter(schema.nodes)) if len(schema.nodes) == 1 else "node")
    table = schema.nodes.get(kind, NodeTable(guess=True))
    schema.nodes[kind] = replace(table, files=[*(table.files if kind in fresh else []), path])
    fresh.add(kind)


def _set_edges(schema: Schema, key: str, path: str, fresh: set[Any]) -> None:
    kind = _edge_type(schema, key)
    table = schema.edges.get(kind, EdgeTable(source=kind[0], target=kind[2], guess=True))
    schema.edges[kind] = replace(table, files=[*(table.files if kind in fresh else []), path])
    fresh.add(kind)


def _set_triples(schema: Schema, split: str, path: str, argument: str) -> None:
    """Add files of head, relation and tail; a word after the dot is the split of all rows of the file."""
    named = next((part for part, words in SPLIT_WORDS.items() if split in words), None)
    if split and named is None:
        raise RecipeError(
            f"{argument}: expected triples=FILE, or triples.train, triples.val and triples.test"
        )
    entity = next(iter(schema.nodes)) if len(schema.nodes) == 1 else "entity"
    kind = entity, "triples", entity
    table = schema.edges.get(kind, EdgeTable(source=entity, target=entity, relation="", guess=True))
    told = [*(table.file_splits or []), *([named] if named else [])]
    if told and len(told) <= len(table.files):
        raise RecipeError(f"{argument}: give the split of every file of triples, or of none")
    schema.edges[kind] = replace(table, files=[*table.files, path], file_splits=told or None)


def _edge_type(schema: Schema, key: str) -> EdgeType:
    """Return the relation that a key of the command line means."""
    parts = key.split(".") if key else []
    if len(parts) == 3:
        return cast(EdgeType, tuple(parts))
    named = [kind for kind in schema.edges if not parts or kind[1] == key]
    if len(named) == 1:
        return named[0]
    if len(parts) > 1 or len(named) > 1 or len(schema.nodes) > 1:
        known = ", ".join(".".join(kind) for kind in schema.edges) or "none in the schema"
        raise RecipeError(
            f"edges{'.' + key if key else ''}: which relation? give edges.SOURCE.RELATION.TARGET=FILE, "
            f"such as edges.author.writes.paper=writes.csv (known: {known})"
        )
    only = next(iter(schema.nodes), "node")
    return only, key or "edge", only


def _add(schema: Schema, part: str, key: str, section: dict[str, Any], where: str, base: Path | None) -> None:
    if isinstance(section.get("files"), str):
        section["files"] = [section["files"]]
    if base is not None and isinstance(section.get("files"), list):
        section["files"] = [str(base / path) if isinstance(path, str) else path for path in section["files"]]
    _check_delimiter(section.get("delimiter"), where)
    if part == "nodes":
        nodes = NodeTable(**bind(NodeTable, section, where, given=("guess",)))
        _check_split(nodes.split, where)
        features_of(nodes, where)
        schema.nodes[key] = nodes
        return
    parts = key.split(".")
    if len(parts) == 3:
        section = {"source": parts[0], "target": parts[2], **section}
    edges = EdgeTable(**bind(EdgeTable, section, where, given=("guess",)))
    _check_split(edges.split, where)
    _check_file_splits(edges, where)
    features_of(edges, where)
    edges.label_feature(where)
    schema.edges[(edges.source, parts[1] if len(parts) == 3 else key, edges.target)] = edges


def _check_delimiter(delimiter: Any, where: str) -> None:
    """Raise where text stands that cannot part cells; what is no text at all is refused with other types."""
    if isinstance(delimiter, str) and (len(delimiter) != 1 or delimiter in _NO_DELIMITER):
        raise RecipeError(
            f"{where}.delimiter: expected one character that is no quote and no end of a line, "
            f"got {delimiter[:20]!r}"
        )


def _check_split(split: str | dict[str, str] | None, where: str) -> None:
    wrong = set(split) - set(SPLITS) if isinstance(split, dict) else set()
    if wrong:
        raise RecipeError(f"{where}.split: expected train, val and test, got {sorted(wrong)[0]!r}")


def _check_file_splits(edges: EdgeTable, where: str) -> None:
    told = edges.file_splits
    if told is not None and (edges.split or {*told} - {*SPLITS} or len(told) != len(edges.files)):
        raise RecipeError(
            f"{where}.file_splits: expected train, val or test for each of {len(edges.files)} files, and no "
            f"split beside it, got {told!r}"
        )


def _section(table: Table) -> dict[str, Any]:
    held = {key: value for key, value in asdict(table).items() if value is not None and key != "guess"}
    if table.features is not None:
        held["features"] = [
            given["column"] if isinstance(given, dict) and given.get("encode") is None else given
            for given in held["features"]
        ]
    if held.get("null") == [""]:
        del held["null"]
    return held


def _key(key: str) -> str:
    plain = key and all(letter.isascii() and (letter.isalnum() or letter in "-_") for letter in key)
    return key if plain else '"' + key.replace("\\", "\\\\").replace('"', '\\"') + '"'
