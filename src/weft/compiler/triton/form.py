"""How a program is laid out in the registers of a GPU: sizes of its tiles, and what cannot be laid out."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch

from weft.compiler.programs.program import COMPARISONS, IDENTITIES, Program, Result, Shape, broadcast

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
_SUMS = ("sum_width", "dot", "dot_t")
WIDEST = 512
"""Values of one edge that a program holds at most; more are dealt to several programs, block by block."""
BLOCK = 128
LARGEST = 128
"""A weight has at most so many rows and columns: it stays in fast memory."""
SHORTEST = 16
"""Matrix units take no shorter axis."""


def power(value: int) -> int:
    """Return the smallest power of 2 that is not below value."""
    return 1 << max(value - 1, 0).bit_length()


@dataclass(frozen=True)
class KernelForm:
    """A program with the types of its tensors, and what follows from them."""

    program: Program
    dtypes: tuple[torch.dtype, ...]

    @cached_property
    def kinds(self) -> list[torch.dtype]:
        """The type of every value, by number, as torch would have it."""
        real = next((each for each in self.dtypes if each.is_floating_point), torch.float32)
        kinds = [real if each == torch.uint8 else each for each in self.dtypes]
        for step in self.program.steps:
            args = [kinds[each] for each in step.args]
            if step.op == "constant" or step.op in IDENTITIES:
                kinds.append(real)
            elif step.op in COMPARISONS or len(args) == 1:
                kinds.append(args[0])
            else:
                kinds.append(torch.promote_types(*args[-2:]))
        return kinds

    @cached_property
    def double(self) -> bool:
        """Whether values are held in float64; else in float32."""
        return torch.float64 in self.dtypes

    @cached_property
    def products(self) -> bool:
        """Whether there is a matrix product."""
        shapes = self.program.shapes
        weights = (result.args for result in self.program.results if result.kind == "weight")
        outer = any(min(shapes[a][1], shapes[b][1]) > 1 for a, b in weights)
        return outer or bool(self.matrices)

    @cached_property
    def matrices(self) -> set[tuple[int, str]]:
        """The weights that products take, each by which axis."""
        shapes, steps = self.program.shapes, self.program.steps
        dots = (step for step in steps if step.op in ("dot", "dot_t"))
        return {(step.args[1], step.op) for step in dots if min(shapes[step.args[1]]) > 1}

    @cached_property
    def turned(self) -> list[int]:
        """The weights that are also given transposed: products read them along their first axis."""
        return sorted(weight for weight, op in self.matrices if op == "dot")

    @cached_property
    def largest(self) -> int:
        """The longest axis of a weight that products take."""
        return max((max(self.program.shapes[each]) for each, _ in self.matrices), default=1)

    @cached_property
    def several(self) -> bool:
        """Whether there is more than one matrix product."""
        return len(self.matrices) + sum(each.kind == "weight" for each in self.program.results) > 1

    def fast_bytes(self, edges: int, *, halves: int) -> int:
        """Return about how much fast memory a program takes: weights, tiles on their way, and operands."""
        weights = (self.program.shapes[each] for each, _ in self.matrices)
        held = sum(self.width(rows) * self.width(columns) for rows, columns in weights)
        used = {each for step in self.program.steps for each in step.args}
        used |= {each for result in self.program.results for each in result.args}
        loads = enumerate(self.program.loads)
        coming = sum(number in used and load.source in ("other", "edge") for number, load in loads)
        size = 8 if self.double else 4
        return size * (held * halves + edges * self.values * (2 * coming + 4))

    @cached_property
    def exact(self) -> bool:
        """Whether values are compared with those of another pass, and need the same bits there."""
        return any(result.kind in ("max", "min") for result in self.program.results) or any(
            step.op == "same" for step in self.program.steps
        )

    @cached_property
    def sums(self) -> bool:
        """Whether values are added up along an axis of theirs."""
        return any(step.op in ("sum_width", "sum_heads") for step in self.program.steps)

    @cached_property
    def persistent(self) -> bool:
        """Whether a program works on many groups of rows: it sums over all edges, or holds matrices."""
        return self.products or any(
            each.kind in ("place", "shared", "weight") for each in self.program.results
        )

    @cached_property
    def by_place(self) -> bool:
        """Whether something goes by the place of edges in their row, of which a tile then holds all."""
        return any(each.kind == "place" for each in self.program.results) or any(
            each.source == "place" for each in self.program.loads
        )

    @cached_property
    def numbers(self) -> set[int]:
        """The loads that are whole numbers of rows."""
        return {step.args[0] for step in self.program.steps if step.op in IDENTITIES}

    @cached_property
    def shapes(self) -> list[Shape]:
        """The shapes of the values that are no matrix."""
        return list(self._shapes())

    def _shapes(self) -> Iterator[Shape]:
        for load in self.program.loads:
            if load.source != "weight":
                yield load.shape
        for step in self.program.steps:
            yield step.shape

    @cached_property
    def cut(self) -> tuple[str, int]:
        """The axis that is dealt to programs in blocks, and the block; no axis where all fits into one."""
        most_heads = max((heads for heads, _ in self.shapes), default=1)
        most_width = max((width for _, width in self.shapes), default=1)
        if power(most_heads) * power(most_width) <= WIDEST:
            return "", 0
        ops = {step.op for step in self.program.steps}
        weights = any(result.kind == "weight" for result in self.program.results)
        if not weights and not ops.intersection(_SUMS) and power(most_heads) <= BLOCK:
            return "width", max(BLOCK // power(most_heads), 1)
        if not weights and "sum_heads" not in ops and power(most_width) <= BLOCK:
            return "heads", max(BLOCK // power(most_width), 1)
        return "", 0

    def heads(self, size: int) -> int:
        """Return how many heads a tile holds of a value that has so many."""
        return 1 if size == 1 else self.cut[1] if self.cut[0] == "heads" else power(size)

    def width(self, size: int) -> int:
        """Return how many columns a tile holds of a value that has so many."""
        if size == 1:
            return 1
        if self.cut[0] == "width":
            return self.cut[1]
        return max(power(size), SHORTEST) if self.products else power(size)

    @cached_property
    def blocks(self) -> int:
        """Into how many blocks the cut axis is dealt."""
        axis, block = self.cut
        if not axis:
            return 1
        return -(-max(shape[axis == "width"] for shape in self.shapes) // block)

    @cached_property
    def values(self) -> int:
        """How many values of an edge a tile holds at most."""
        return max((self.heads(heads) * self.width(width) for heads, width in self.shapes), default=1)

    @cached_property
    def alive(self) -> int:
        """How many full values of an edge are needed at once, at most."""
        shapes, last = self.program.shapes, dict[int, int]()
        first = len(self.program.loads)
        for number, step in enumerate(self.program.steps, first):
            last.update(dict.fromkeys(step.args, number))
        for result in self.program.results:
            last.update(dict.fromkeys(result.args, len(shapes)))
        whole = {each for each in last if self._tile(shapes[each]) == self.values}
        made = {each: max(each, first) for each in whole}
        return max(
            (sum(made[each] <= now <= last[each] for each in whole) for now in range(first, len(shapes) + 1)),
            default=1,
        )

    def _tile(self, shape: Shape) -> int:
        return self.heads(shape[0]) * self.width(shape[1])

    def shape_of(self, result: Result) -> Shape:
        """Return heads and width of a result, rows and columns of that of a weight."""
        shapes = [self.program.shapes[each] for each in result.args]
        return (shapes[0][1], shapes[1][1]) if result.kind == "weight" else broadcast(*shapes)

    def kind_of(self, result: Result) -> torch.dtype:
        """Return the type of a result."""
        if result.kind == "flags":
            return torch.uint8
        kinds = [self.kinds[each] for each in result.args]
        return torch.promote_types(kinds[0], kinds[-1])

    def _types(self, number: int) -> tuple[torch.dtype, ...]:
        """Return the types that a load may have."""
        if number in self.numbers:
            return (torch.int32,)
        return (*FLOATS, torch.uint8) if self.program.loads[number].source == "edge" else FLOATS

    @cached_property
    def obstacle(self) -> str:
        """Why no kernel is written for the program; nothing where one is."""
        odd = [each for number, each in enumerate(self.dtypes) if each not in self._types(number)]
        if odd:
            return f"tensors of {odd[0]}"
        if any(not heads * width for heads, width in self.program.shapes):
            return "values without columns"
        if self.values > WIDEST:
            return f"{self.values} values an edge that belong together"
        matrices = [self.program.shapes[each] for each, _ in self.matrices]
        matrices += [self.shape_of(each) for each in self.program.results if each.kind == "weight"]
        large = [shape for shape in matrices if max(shape) > LARGEST]
        return f"a weight of {large[0][0]} × {large[0][1]}" if large else ""
