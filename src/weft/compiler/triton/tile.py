"""The words of Triton for a tile: its shape, the places along its axes, and where it holds a value."""

import torch

from weft.compiler.programs.program import Shape
from weft.compiler.triton.form import KernelForm

SHARED, ROW, EDGE = range(3)
"""Where a value is made: once, once a row, for each edge."""

_NAMES = {torch.bfloat16: "tl.bfloat16", torch.float16: "tl.float16"}


class Tiles:
    """Writes of tiles of one program; values without heads have no axis for them."""

    def __init__(self, form: KernelForm) -> None:
        self.form = form
        self.float = "tl.float64" if form.double else "tl.float32"
        self.heads = any(heads > 1 for heads, _ in form.shapes)

    def dims(self, level: int, shape: Shape) -> str:
        """Return the shape of a tile."""
        edges, rows = "EDGES" if level == EDGE else "1", "ROWS" if level >= ROW else "1"
        heads, width = self.form.heads(shape[0]), self.form.width(shape[1])
        return f"[{edges}, {rows}, {heads}, {width}]" if self.heads else f"[{edges}, {rows}, {width}]"

    def columns(self, shape: Shape) -> str:
        """Return what is added to the place of a row to have all its values."""
        heads, width = shape
        return f" + h{heads} * {width}" * (heads > 1) + f" + w{width}" * (width > 1)

    def inside(self, shape: Shape, axes: str = "hw") -> list[str]:
        """Return the conditions under which places of a tile are not beyond a value's last."""
        found = []
        for axis, size, held in zip("hw", shape, (self.form.heads(shape[0]), self.form.width(shape[1]))):
            if axis in axes and size > 1 and size % held:
                found.append(f"({axis}{size} < {size})")
        return found

    def masked(self, value: int, level: int, axes: str, *, live: bool = False) -> str:
        """Return a value as a whole tile, 0 beyond its last place."""
        shape = self.form.program.shapes[value]
        masks = self.inside(shape, axes) + ["live"] * live
        name = f"tl.where({' & '.join(masks)}, v{value}, 0.0)" if masks else f"v{value}"
        return f"tl.broadcast_to({name}, {self.dims(level, shape)})"

    def flat(self, tile: str, heads: int, width: int) -> str:
        """Return a tile as a matrix of one row per edge and head."""
        return f"tl.reshape({tile}, [EDGES * ROWS * {self.form.heads(heads)}, {self.form.width(width)}])"

    def rounded(self, name: str, kind: torch.dtype) -> str:
        """Return a value as it is once stored: it is compared with what was."""
        return f"{name}.to({_NAMES[kind]}).to({self.float})" if kind in _NAMES else name

    def places(self) -> list[str]:
        """Return the lines that number the places along each axis."""
        axes = 4 if self.heads else 3
        names = {"e": ("EDGES", 0), "r": ("ROWS", 1)}
        lines = [f"{name} = {_arange(size, axis, axes)}" for name, (size, axis) in names.items()]
        weights = (load.shape for load in self.form.program.loads if load.source == "weight")
        for heads in sorted({heads for heads, _ in self.form.shapes if heads > 1}):
            lines.append(f"h{heads} = {_arange(self.form.heads(heads), 2, axes, self.block('heads'))}")
        widths = {width for _, width in self.form.shapes} | {max(shape) for shape in weights}
        for width in sorted(widths - {1}):
            lines.append(f"w{width} = {_arange(self.form.width(width), axes - 1, axes, self.block('width'))}")
        return lines

    def block(self, axis: str) -> int:
        return self.form.cut[1] if self.form.cut[0] == axis else 0


def _arange(size: int | str, axis: int, axes: int, block: int = 0) -> str:
    spread = ", ".join(":" if each == axis else "None" for each in range(axes))
    first = f"tl.program_id(1) * {block} + " if block else ""
    return f"{first}tl.arange(0, {size})[{spread}]"
