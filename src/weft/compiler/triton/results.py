"""Text of a program's results for Triton: how values of edges are reduced, and where they are stored."""

from collections.abc import Sequence

from weft.compiler.programs.program import Result, Shape
from weft.compiler.triton.tile import EDGE, ROW, SHARED
from weft.compiler.triton.values import ValueText

PARAMETERS = {
    "sum": ("out", "part"),
    "max": ("out", "beside", "part", "part_beside"),
    "min": ("out", "beside", "part", "part_beside"),
    "winner": ("out",),
    "softmax": ("out", "beside", "part", "part_beside", "part_mass"),
    "edge": ("out",),
    "flags": ("out",),
    "place": ("part",),
    "shared": ("part",),
    "weight": ("part",),
}
"""The tensors that a result is written to. `part` has one row per segment of a hub, or one per program."""


class ResultText(ValueText):
    """The lines of results beside those of values."""

    def result(self, number: int, result: Result) -> None:
        """Say what becomes of values."""
        {
            "sum": self.total,
            "max": self.extreme,
            "min": self.extreme,
            "winner": self.winner,
            "softmax": self.softmax,
            "edge": self.store_edges,
            "flags": self.store_edges,
            "place": self.over_rows,
            "shared": self.over_all,
            "weight": self.over_all,
        }[result.kind](number, result)

    def total(self, number: int, result: Result) -> None:
        shape, name = self.form.shape_of(result), f"a{number}"
        self.before[ROW].append(f"{name} = {self.zeros(shape)}")
        self.add_up(name, f"v{result.args[0]}", "live")
        self.row_end.append(f"{name} = {self.summed(name)}")
        self.store_row(f"out{number}", shape, name)
        self.store_part(f"part{number}", shape, name)

    def extreme(self, number: int, result: Result) -> None:
        shape, kind = self.form.shape_of(result), self.form.kind_of(result)
        best, ties, sign = f"a{number}", f"n{number}", "" if result.kind == "max" else "-"
        dims = self.tile.dims(EDGE if self.form.products else ROW, shape)
        self.before[ROW].append(f'{best} = tl.full({dims}, float("-inf"), {self.tile.float})')
        self.before[ROW].append(f"{ties} = tl.zeros({dims}, tl.int32)")
        new = f"tl.where(live, {sign}{self.tile.rounded(f'v{result.args[0]}', kind)}, float('-inf'))"
        self.before[EDGE].append(f"t{number} = {new}")
        one = f"tl.broadcast_to(live, {self.tile.dims(EDGE, shape)}).to(tl.int32)"
        if self.form.products:
            self.before[EDGE].append(f"{best}, {ties} = steps.take({best}, {ties}, t{number}, {one})")
            self.row_end.append(f"{best}, {ties} = steps.over_edges({best}, {ties})")
        else:
            self.before[EDGE].append(f"t{number}, u{number} = steps.over_edges(t{number}, {one})")
            self.before[EDGE].append(f"{best}, {ties} = steps.take({best}, {ties}, t{number}, u{number})")
        self.store_row(f"out{number}", shape, f"tl.where({ties} > 0, {sign}{best}, 0.0)")
        self.store_row(f"beside{number}", shape, ties)
        self.store_part(f"part{number}", shape, best)
        self.store_part(f"part_beside{number}", shape, ties)

    def winner(self, number: int, result: Result) -> None:
        """Keep beside the extreme, which is the first result, whose edges attain it."""
        shape, name = self.form.shape_of(result), f"w{number}"
        dims, edge = self.tile.dims(EDGE, shape), self.before[EDGE]
        at = next(place for place, line in enumerate(edge) if line.startswith("a0, n0 = steps.take("))
        self.before[ROW].append(f"{name} = tl.full({dims}, -1, tl.int32)")
        edge.insert(at, f"{name} = steps.winner({name}, a0, n0, t0, far, live)")
        at = next(place for place, line in enumerate(self.row_end) if "steps.over_edges(a0" in line)
        self.row_end.insert(at, f"{name} = steps.winner_over_edges({name}, a0, n0)")
        self.store_row(f"out{number}", shape, name)

    def softmax(self, number: int, result: Result) -> None:
        score, value = result.args
        shape, per_head = self.form.shape_of(result), self.shapes[score]
        total, top, mass = f"a{number}", f"t{number}", f"n{number}"
        self.before[ROW].append(
            f'{top} = tl.full({self.tile.dims(ROW, per_head)}, float("-inf"), {self.tile.float})'
        )
        self.before[ROW].append(f"{mass} = tl.zeros({self.tile.dims(ROW, per_head)}, {self.tile.float})")
        self.before[ROW].append(f"{total} = tl.zeros({self.tile.dims(ROW, shape)}, {self.tile.float})")
        self.before[EDGE].extend(
            (
                f'{top}, p{number}, q{number} = steps.online({top}, tl.where(live, v{score}, float("-inf")))',
                f"{mass} = {mass} * q{number} + tl.sum(p{number}, 0, keep_dims=True)",
                f"u{number} = p{number} * tl.where(live, v{value}, 0.0)",
                f"{total} = {total} * q{number} + tl.sum(u{number}, 0, keep_dims=True)",
            )
        )
        self.store_part(f"part{number}", shape, total)
        self.store_part(f"part_beside{number}", per_head, top)
        self.store_part(f"part_mass{number}", per_head, mass)
        self.store_row(f"out{number}", shape, f"{total} / tl.where({mass} == 0.0, 1.0, {mass})")
        level = f'tl.where({top} == float("-inf"), 0.0, {top}) + tl.log({mass})'
        self.store_row(f"beside{number}", per_head, level)

    def store_edges(self, number: int, result: Result) -> None:
        shape, (value,) = self.form.shape_of(result), result.args
        masks = " & ".join(["live", *self.tile.inside(shape)])
        at = f"out{number} + number * {shape[0] * shape[1]}{self.tile.columns(shape)}"
        whole = f"tl.broadcast_to(v{value}, {self.tile.dims(EDGE, shape)})"
        self.before[EDGE].append(f"tl.store({at}, {whole}.to(out{number}.dtype.element_ty), mask={masks})")

    def over_rows(self, number: int, result: Result) -> None:
        """Sum over all rows of a program, each place in them for itself."""
        name, shape = f"a{number}", self.form.shape_of(result)
        self.before[SHARED].append(f"{name} = tl.zeros({self.tile.dims(EDGE, shape)}, {self.tile.float})")
        self.before[EDGE].append(f"{name} += tl.where(live, v{result.args[0]}, 0.0)")
        size = shape[0] * shape[1]
        at = f"part{number} + (tl.program_id(0) * PLACES + e) * {size}{self.tile.columns(shape)}"
        masks = " & ".join(["e < PLACES", *self.tile.inside(shape)])
        self.end.append(f"tl.store({at}, tl.sum({name}, 1, keep_dims=True), mask={masks})")

    def over_all(self, number: int, result: Result) -> None:
        """Sum over all edges of a program, for a weight of products."""
        name, shape = f"a{number}", self.form.shape_of(result)
        if result.kind == "weight" and min(shape) > 1:
            return self.outer(number, result, shape)
        value, masks = f"v{result.args[0]}", "live"
        if result.kind == "weight":
            value = f"{value} * v{result.args[1]}"
            heads = self.shapes[result.args[0]][0]
            masks = " & ".join(["live", *(m for m in self.tile.inside((heads, 1)))])
            shape = (heads, max(shape))
        self.before[SHARED].append(f"{name} = {self.zeros(shape)}")
        self.add_up(name, value, masks)
        whole = f"tl.sum({self.summed(name)}, 1, keep_dims=True)"
        if result.kind == "weight" and self.tile.heads:
            whole, shape = f"tl.sum({whole}, 2, keep_dims=True)", (1, shape[1])
        at = f"part{number} + tl.program_id(0) * {shape[0] * shape[1]}{self.tile.columns(shape)}"
        self.end.append(self.store(at, self.tile.inside(shape), whole, shape, SHARED))
        return None

    def outer(self, number: int, result: Result, shape: Shape) -> None:
        (a, b), (k, n) = result.args, shape
        name, heads = f"a{number}", self.shapes[a][0]
        dims = f"[{self.form.width(k)}, {self.form.width(n)}]"
        self.before[SHARED].extend(self.axes(k, n))
        self.before[SHARED].append(f"{name} = tl.zeros({dims}, {self.tile.float})")
        left, right = (
            self.tile.flat(self.tile.masked(each, EDGE, "hw", live=True), heads, w)
            for each, w in ((a, k), (b, n))
        )
        self.before[EDGE].append(f"{name} = steps.outer({left}, {right}, {name}, PRECISION)")
        at = f"part{number} + tl.program_id(0) * {k * n} + i{k} * {n} + j{n}"
        self.end.append(f"tl.store({at}, {name}, mask=(i{k} < {k}) & (j{n} < {n}))")

    def add_up(self, name: str, value: str, masks: str) -> None:
        """Add a value of each edge to a running sum: of each place in the tile after a matrix product, whose
        layout has the edges of a row in several threads."""
        new = f"tl.where({masks}, {value}, 0.0)"
        self.before[EDGE].append(
            f"{name} += {new}" if self.form.products else f"{name} += tl.sum({new}, 0, keep_dims=True)"
        )

    def summed(self, name: str) -> str:
        return f"tl.sum({name}, 0, keep_dims=True)" if self.form.products else name

    def zeros(self, shape: Shape) -> str:
        return f"tl.zeros({self.tile.dims(EDGE if self.form.products else ROW, shape)}, {self.tile.float})"

    def store_row(self, name: str, shape: Shape, value: str) -> None:
        at = f"{name} + row * {shape[0] * shape[1]}{self.tile.columns(shape)}"
        value = f"({value}).to({name}.dtype.element_ty)"
        self.row_end.append(self.store(at, ["whole", *self.tile.inside(shape)], value, shape, ROW))

    def store_part(self, name: str, shape: Shape, value: str) -> None:
        at = f"{name} + item.to(tl.int64) * {shape[0] * shape[1]}{self.tile.columns(shape)}"
        self.row_end.append("if HUBS:")
        self.row_end.append("    " + self.store(at, ["segment", *self.tile.inside(shape)], value, shape, ROW))

    def store(self, at: str, masks: Sequence[str], value: str, shape: Shape, level: int) -> str:
        zero = f" + tl.zeros({self.tile.dims(level, shape)}, tl.int32)"
        guard = f", mask={' & '.join(masks)}" if masks else ""
        return f"tl.store({at}{zero}, {value}{guard})"
