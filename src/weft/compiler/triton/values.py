"""Text of a program's values for Triton: what is loaded, and each step, one line per value."""

import torch

from weft.compiler.programs.program import IDENTITIES, Load, Shape, Step
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
    "is_other": "{0} == far",
    "is_row": "{0} == row",
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


class ValueText:
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
        place = {"row": "row", "other": "far", "edge": "number", "place": "e", "shared": ""}[load.source]
        self.level[number] = {"row": ROW, "shared": SHARED}.get(load.source, EDGE)
        live = {"place": ["e < PLACES"], "row": [], "shared": []}.get(load.source, ["live"])
        masks = [*self.tile.inside(load.shape), *live]
        at = " + ".join([f"x{number}", *([f"{place} * {load.shape[0] * load.shape[1]}"] if place else [])])
        flags, whole = self.form.dtypes[number] == torch.uint8, number in self.form.numbers
        guard = f", mask={' & '.join(masks)}, other={0 if flags or whole else 0.0}" if masks else ""
        read = f"tl.load({at}{self.tile.columns(load.shape)}{guard})"
        value = read if whole else f"{f'steps.flags({read})' if flags else read}.to({self.tile.float})"
        # a tile has all places: what is read by them stays for all rows
        self.before[SHARED if load.source == "place" else self.level[number]].append(f"v{number} = {value}")

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
        self.level[number] = EDGE if step.op in IDENTITIES else max(self.level[each] for each in step.args)
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

    def say(self, number: int, expression: str) -> None:
        """Add the line that gives a value its name."""
        self.before[self.level[number]].append(f"v{number} = {expression}")
