"""Triton source of a program: one kernel over groups of rows, some edges of each row at a time.

A value is a tile edges × rows × heads × width, 1 where it is the same along an axis: what depends on the row
alone is made once a row, what all edges share once. Threads lie along width and rows, so the edges of a row
are added up within a thread. The text is made of the tables here and of numbers, of nothing a user wrote.
"""

from collections.abc import Sequence

import torch

from weft.compiler.programs.program import Load, Result, Shape, Step
from weft.compiler.triton.form import KernelForm
from weft.compiler.triton.tile import EDGE, ROW, SHARED, Tiles

_CONDITIONS = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "same": "steps.same({0}, {1})",
    "not": "{0} == 0.0",
}
_STEPS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    # the larger, and NaN of two
    "maximum": "tl.where(({0} > {1}) | ({0} != {0}), {0}, {1})",
    "minimum": "tl.where(({0} < {1}) | ({0} != {0}), {0}, {1})",
    "pow": "steps.pow({0}, {1})",
    "neg": "-{0}",
    "abs": "tl.abs({0})",
    "sign": "({0} > 0).to(FLOAT) - ({0} < 0).to(FLOAT)",
    "relu": "tl.where({0} < 0, 0.0, {0})",
    "reciprocal": "1.0 / {0}",
    "sqrt": "tl.sqrt({0})",
    "exp": "tl.exp({0})",
    "expm1": "steps.expm1({0})",
    "log": "tl.log({0})",
    "log1p": "steps.log1p({0})",
    "sigmoid": "tl.sigmoid({0})",
    "tanh": "steps.tanh({0})",
    "erf": "tl.erf({0})",
    "sin": "tl.sin({0})",
    "cos": "tl.cos({0})",
}
_POWERS = {1.0: "{0}", 2.0: "{0} * {0}", 3.0: "{0} * {0} * {0}", 0.5: "tl.sqrt({0})", -1.0: "1.0 / {0}"}
PARAMETERS = {
    "sum": ("out", "part"),
    "max": ("out", "beside", "part", "part_beside"),
    "min": ("out", "beside", "part", "part_beside"),
    "softmax": ("out", "beside", "part", "part_beside", "part_mass"),
    "edge": ("out",),
    "flags": ("out",),
    "shared": ("part",),
    "weight": ("part",),
}
"""The tensors that a result is written to. `part` has a row a segment of a hub, or one a program."""
FLAGS = ("NUMBERED", "ORDERED", "HUBS", "WIDE", "SEGMENT", "PRECISION", "EDGES", "ROWS")


def source(form: KernelForm) -> str:
    """Return the text of a module with the function `kernel`."""
    text = KernelText(form)
    for number, load in enumerate(form.program.loads):
        text.load(number, load)
    for number, step in enumerate(form.program.steps, len(form.program.loads)):
        text.step(number, step)
    for number, result in enumerate(form.program.results):
        text.result(number, result)
    return text.module()


def parameters(form: KernelForm) -> list[str]:
    """Return the names of the tensors that the kernel of a program takes after the CSR."""
    loads = [f"x{number}" for number in range(len(form.program.loads))]
    loads += [f"x{number}turned" for number in form.turned]
    results = enumerate(form.program.results)
    return loads + [f"{name}{number}" for number, each in results for name in PARAMETERS[each.kind]]


class KernelText:
    """The lines of a kernel by where they stand: before all, before a row's edges, for edges, and after."""

    def __init__(self, form: KernelForm) -> None:
        self.form, self.tile, self.shapes = form, Tiles(form), form.program.shapes
        self.before: tuple[list[str], list[str], list[str]] = ([], [], [])
        self.row_end: list[str] = []
        self.end: list[str] = []
        self.level: dict[int, int] = {}
        self.conditions: set[int] = set()
        self.matrices: set[str] = set()
        self.used = {each for step in form.program.steps for each in step.args}
        self.used |= {each for result in form.program.results for each in result.args}

    # loads

    def load(self, number: int, load: Load) -> None:
        """Read a tensor at its place."""
        if number not in self.used or load.source == "weight":
            return
        place = {"row": "row", "other": "far", "edge": "number", "shared": ""}[load.source]
        self.level[number] = {"row": ROW, "shared": SHARED}.get(load.source, EDGE)
        masks = self.tile.inside(load.shape) + (["live"] if self.level[number] == EDGE else [])
        at = " + ".join([f"x{number}", *([f"{place} * {load.shape[0] * load.shape[1]}"] if place else [])])
        flags = self.form.dtypes[number] == torch.uint8
        guard = f", mask={' & '.join(masks)}, other={0 if flags else 0.0}" if masks else ""
        read = f"tl.load({at}{self.tile.columns(load.shape)}{guard})"
        self.say(number, f"{f'steps.flags({read})' if flags else read}.to({self.tile.float})")

    def matrix(self, number: int, *, transposed: bool) -> str:
        """Return the names of a weight, or of its transpose, that was read once: its upper part and the rest.

        It is read from where the axis along which products add up lies together, and kept so in fast memory.
        """
        name = f"m{number}{'t' * transposed}"
        if name not in self.matrices:
            self.matrices.add(name)
            wide, high = self.shapes[number] if transposed else self.shapes[number][::-1]
            at = f"x{number}{'' if transposed else 'turned'} + i{wide} * {high} + j{high}"
            mask = f"(i{wide} < {wide}) & (j{high} < {high})"
            self.before[SHARED].extend(
                (
                    *self.axes(wide, high),
                    f"{name} = tl.trans(tl.load({at}, mask={mask}, other=0.0).to({self.tile.float}))",
                    f"{name}u = steps.upper({name}, PRECISION)",
                    f"{name}r = {name} - {name}u",
                )
            )
        return f"{name}u, {name}r"

    def axes(self, high: int, wide: int) -> list[str]:
        """Return the lines that number the rows and columns of a matrix."""
        return [
            f"i{high} = tl.arange(0, {self.form.width(high)})[:, None]",
            f"j{wide} = tl.arange(0, {self.form.width(wide)})[None, :]",
        ]

    # steps

    def step(self, number: int, step: Step) -> None:
        """Take one step."""
        if step.op in ("dot", "dot_t"):
            return self.product(number, step)
        if step.op == "constant":
            self.level[number] = SHARED
            value = f'float("{step.number}")' if step.number - step.number else repr(step.number)
            return self.say(number, f"tl.full({self.tile.dims(SHARED, (1, 1))}, {value}, {self.tile.float})")
        self.level[number] = max(self.level[each] for each in step.args)
        if step.op == "expand":
            self.say(
                number, f"tl.broadcast_to(v{step.args[0]}, {self.tile.dims(self.level[number], step.shape)})"
            )
        elif step.op in ("sum_width", "sum_heads"):
            self.sum(number, step)
        elif step.op in _CONDITIONS:
            self.compare(number, step)
        else:
            self.elementwise(number, step)
        return None

    def elementwise(self, number: int, step: Step) -> None:
        pattern, args = _STEPS.get(step.op, ""), [f"v{each}" for each in step.args]
        if step.op == "pow":
            pattern = _POWERS.get(self.constant(step.args[1]), pattern)
        if step.op == "where":
            mask = step.args[0]
            condition = f"c{mask}" if mask in self.conditions else f"v{mask} != 0.0"
            self.say(number, f"tl.where({condition}, {args[1]}, {args[2]})")
        else:
            self.say(number, pattern.format(*args).replace("FLOAT", self.tile.float))

    def compare(self, number: int, step: Step) -> None:
        """Keep a comparison as what `where` takes, too."""
        args = [f"v{each}" for each in step.args]
        if step.op == "same":
            args = [self.tile.rounded(f"v{each}", self.form.kinds[each]) for each in step.args]
        self.conditions.add(number)
        self.before[self.level[number]].append(f"c{number} = {_CONDITIONS[step.op].format(*args)}")
        self.say(number, f"c{number}.to({self.tile.float})")

    def constant(self, number: int) -> float:
        """Return the number that a value is, NaN where it is none."""
        first = len(self.form.program.loads)
        step = self.form.program.steps[number - first] if number >= first else None
        return step.number if step is not None and step.op == "constant" else float("nan")

    def sum(self, number: int, step: Step) -> None:
        """Add up along an axis."""
        (value,), across = step.args, step.op == "sum_heads"
        whole = self.tile.masked(value, self.level[number], "h" if across else "w")
        self.reduce(number, whole, self.shapes[value], across=across)

    def reduce(self, number: int, whole: str, shape: Shape, *, across: bool) -> None:
        """Add up along an axis, in a fixed order where bits count: a reduction's order is its layout's."""
        axis = 2 if across or not self.tile.heads else 3
        if not self.form.exact:
            return self.say(number, f"tl.sum({whole}, {axis}, keep_dims=True)")
        lines, name, level = self.before[self.level[number]], f"s{number}", self.level[number]
        heads, width = self.form.heads(shape[0]), self.form.width(shape[1])
        stay, size = (width, heads) if across else (heads, width)
        lines.append(f"{name} = {f'tl.permute({whole}, (0, 1, 3, 2))' if across else whole}")
        kept = self.tile.dims(level, (1, 1))[1:-1].split(", ")[:2] + ([str(stay)] if self.tile.heads else [])
        while size > 1:
            size //= 2
            lines.append(f"{name}l, {name}r = tl.split(tl.reshape({name}, [{', '.join(kept)}, {size}, 2]))")
            lines.append(f"{name} = {name}l + {name}r")
        return self.say(number, f"tl.reshape({name}, {self.tile.dims(level, self.shapes[number])})")

    def product(self, number: int, step: Step) -> None:
        """Multiply the values of all edges of a tile by a weight."""
        value, weight = step.args
        (heads, k), (_, n) = self.shapes[value], step.shape
        self.level[number] = EDGE
        if k == 1 or n == 1:
            return self.by_vector(number, value, weight)
        matrix = self.matrix(weight, transposed=step.op == "dot_t")
        rows = self.tile.flat(self.tile.masked(value, EDGE, "w"), heads, k)
        made = f"steps.product({rows}, {matrix}, PRECISION)"
        return self.say(number, f"tl.reshape({made}, {self.tile.dims(EDGE, step.shape)})")

    def by_vector(self, number: int, value: int, weight: int) -> None:
        """Multiply by a weight that is one row or one column."""
        size = max(self.shapes[weight])
        guard = f", mask=w{size} < {size}, other=0.0" if self.tile.inside((1, size)) else ""
        at = f"x{weight}" + self.tile.columns((1, size))
        name = f"m{number}"
        self.before[SHARED].append(f"{name} = tl.load({at}{guard}).to({self.tile.float})")
        if self.shapes[number][1] > 1 or self.shapes[value][1] == 1:
            one = "" if size > 1 else f" + tl.zeros({self.tile.dims(SHARED, (1, 1))}, {self.tile.float})"
            return self.say(number, f"v{value} * ({name}{one})")
        return self.reduce(
            number, f"({self.tile.masked(value, EDGE, 'w')} * {name})", self.shapes[value], across=False
        )

    # results

    def result(self, number: int, result: Result) -> None:
        """Say what becomes of values."""
        {
            "sum": self.total,
            "max": self.extreme,
            "min": self.extreme,
            "softmax": self.softmax,
            "edge": self.store_edges,
            "flags": self.store_edges,
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

    def say(self, number: int, expression: str) -> None:
        """Add the line that gives a value its name."""
        self.before[self.level[number]].append(f"v{number} = {expression}")

    # the module

    def module(self) -> str:
        """Return the whole text."""
        given = ["indptr", "other", "numbers", "order", "segment_rows", "segment_starts"]
        given += ["num_segments", "num_items", *parameters(self.form)]
        given += [f"{flag}: tl.constexpr" for flag in FLAGS]
        body = [*self.tile.places(), *self.before[SHARED]]
        rows = self.rows()
        if self.form.persistent:
            body.append("for group in range(tl.program_id(0), tl.cdiv(num_items, ROWS), tl.num_programs(0)):")
            rows = _indented(rows)
        else:
            body.append("group = tl.program_id(0)")
        body += [*rows, *self.end]
        head = [
            '"""One pass over the edges, written by weft.compiler.triton.source."""',
            "",
            "import triton",
            "import triton.language as tl",
            "",
            "from weft.kernels.triton import steps",
            "",
            "",
            '@triton.jit(do_not_specialize=["num_segments", "num_items"])',
            "def kernel(",
        ]
        return "\n".join([*head, *_indented([f"{each}," for each in given]), "):", *_indented(body), ""])

    def rows(self) -> list[str]:
        """Return the lines for one group of rows."""
        far = any(load.source == "other" and i in self.used for i, load in enumerate(self.form.program.loads))
        numbered = any(load.source == "edge" for load in self.form.program.loads) or any(
            result.kind in ("edge", "flags") for result in self.form.program.results
        )
        asked = "indptr, order, segment_rows, segment_starts, item, num_segments, num_items"
        lines = [
            "item = group * ROWS + r",
            f"row, start, count, segment, whole = steps.items({asked}, ORDERED, HUBS, SEGMENT, WIDE)",
            *self.before[ROW],
        ]
        loop = ["place = k + e", "live = place < count"]
        if far:
            # the next indices are fetched while the rows of these are on their way
            lines.append("ahead = tl.load(other + start + e, mask=e < count, other=0)")
            loop += ["far = ahead", "if WIDE:", "    far = far.to(tl.int64)"]
            following = "place + EDGES"
            loop.append(f"ahead = tl.load(other + start + {following}, mask={following} < count, other=0)")
        if numbered:
            loop += ["number = start + place", "if NUMBERED:"]
            loop += ["    number = tl.load(numbers + number, mask=live, other=0)"]
            loop += ["if WIDE:", "    number = number.to(tl.int64)"]
        loop += self.before[EDGE]
        lines += ["for k in range(0, tl.max(count), EDGES):", *_indented(loop)]
        return lines + self.row_end


def _indented(lines: Sequence[str]) -> list[str]:
    return ["    " + line for line in lines]
