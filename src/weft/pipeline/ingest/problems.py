"""What is wrong with the tables of a user: each problem with its file, row and value, and what fixes it."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from weft.errors import InputError, RecipeError
from weft.registry import suggest

Level = Literal["error", "warning", "note"]

# What `--fix` may be told to do, and the kinds of problems that are then none.
FIXES = {
    "drop-dangling": "leave out edges that name no node",
    "drop-duplicates": "keep the first of the rows that have the same node id",
    "drop-null-ids": "leave out nodes and edges without an id",
    "drop-duplicate-edges": "keep the first of equal edges",
    "fill-missing": "put 0 where a feature is missing, NaN or infinite, 1 where a weight is",
}
# Enough to see what is wrong; the count tells how often.
EXAMPLES = 3


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong, or worth knowing."""

    level: Level
    kind: str
    """Such as "dangling-edge"; the same for all of a kind."""
    table: str
    """Such as "edges person.knows.person"."""
    message: str
    file: str | None = None
    row: int | None = None
    """Counted from 1, a header not counted."""
    column: str | None = None
    value: Any = None
    count: int = 1
    fix: str | None = None
    """What `--fix` would do about it."""

    def line(self) -> str:
        """Return the problem as one line."""
        place = [self.file or self.table]
        place += [f"row {self.row:,}"] if self.row is not None else []
        place += [f"column {self.column!r}"] if self.column is not None else []
        often = f" ({self.count:,} in all)" if self.count > 1 else ""
        hint = f"; --fix {self.fix} would {FIXES[self.fix]}" if self.fix else ""
        return f"{', '.join(place)}: {self.message}{often}{hint}"

    def as_json(self) -> dict[str, Any]:
        """Return the problem as a JSON object."""
        shown = asdict(self)
        shown["value"] = None if self.value is None else show(self.value)
        return shown


@dataclass
class Problems:
    """All problems found so far. What a fix takes care of is noted and is no error."""

    fixes: frozenset[str] = frozenset()
    found: list[Problem] = field(default_factory=list)

    def add(self, level: Level, kind: str, table: str, message: str, **fields: Any) -> None:
        """Add a problem; an error that a fix was asked for becomes a note."""
        if fields.get("fix") in self.fixes:
            level, message = "note", f"{message}; fixed by {fields.pop('fix')}"
        self.found.append(Problem(level, kind, table, message, **fields))

    def of(self, level: Level) -> list[Problem]:
        """Return the problems of a level."""
        return [problem for problem in self.found if problem.level == level]

    @property
    def errors(self) -> list[Problem]:
        """What must be mended before there can be a graph."""
        return self.of("error")

    def check(self) -> None:
        """Raise one line if there are errors: the first, and how many kinds more there are."""
        if not self.errors:
            return
        more = {(problem.kind, problem.table, problem.file) for problem in self.errors[1:]}
        more.discard((self.errors[0].kind, self.errors[0].table, self.errors[0].file))
        also = f"; {len(more)} more, see them all with: weft validate" if more else ""
        raise InputError(f"{self.errors[0].line()}{also}")


def parse_fixes(given: Iterable[str]) -> frozenset[str]:
    """Return the fixes named in `--fix a,b`; an unknown one is refused with the nearest known."""
    names = [part.strip() for word in given for part in word.split(",") if part.strip()]
    for fix in names:
        if fix not in FIXES:
            known = ", ".join(FIXES)
            raise RecipeError(f"--fix: no fix {fix!r}; {suggest(fix, FIXES)}known: {known}")
    return frozenset(names)


def show(value: Any) -> str:
    """Return a value for people: short, quoted where it is text, on one line."""
    shown = repr(value) if isinstance(value, str) else str(value)
    return shown if len(shown) <= 60 else shown[:57] + "…"
