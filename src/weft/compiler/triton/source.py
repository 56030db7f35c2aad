"""Triton source of a program: one kernel over groups of rows, some edges of each row at a time.

A value is a tile edges × rows × heads × width, 1 where it is the same along an axis: what depends on the row
alone is made once a row, what all edges share once. Threads lie along width and rows, so the edges of a row
are added up within a thread. The text is made of tables and of numbers, of nothing a user wrote.
"""

from collections.abc import Sequence

from weft.compiler.triton.form import KernelForm
from weft.compiler.triton.results import PARAMETERS, ResultText
from weft.compiler.triton.tile import EDGE, ROW, SHARED

FLAGS = ("NUMBERED", "ORDERED", "HUBS", "WIDE", "SEGMENT", "PRECISION", "PLACES", "AHEAD", "EDGES", "ROWS")


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


class KernelText(ResultText):
    """The whole text."""

    def module(self) -> str:
        """Return the whole text."""
        given = ["indptr", "other", "numbers", "order", "segment_rows", "segment_starts"]
        given += ["num_segments", "num_items", *parameters(self.form)]
        given += [f"{flag}: tl.constexpr" for flag in FLAGS]
        body = [*self.tile.places(), *self.before[SHARED]]
        rows = self.rows()
        if self.form.persistent:
            span = "tl.program_id(0), tl.cdiv(num_items, ROWS), tl.num_programs(0)"
            ahead = ", num_stages=AHEAD" if self.form.by_place else ""
            body.append(f"for group in {'tl.' * self.form.by_place}range({span}{ahead}):")
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
        return self.rows_of_places() if self.form.by_place else self.rows_of_any_length()

    def rows_of_places(self) -> list[str]:
        """Return the lines for a group of rows of as many edges each, which fit into a tile.

        There is no inner loop, so the next rows are fetched while these are worked on.
        """
        lines = ["item = group * ROWS + r", "whole = item < num_items", "row = tl.where(whole, item, 0)"]
        lines += ["if WIDE:", "    row = row.to(tl.int64)", "segment = item < 0", *self.before[ROW]]
        lines += ["live = (e < PLACES) & whole", "number = row * PLACES + e"]
        lines += ["far = tl.load(other + number, mask=live, other=-1)", "live = live & (far >= 0)"]
        lines += ["if WIDE:", "    far = far.to(tl.int64)"]
        lines += ["if NUMBERED:", "    number = tl.load(numbers + number, mask=live, other=0)"]
        return [*lines, *self.before[EDGE], *self.row_end]

    def rows_of_any_length(self) -> list[str]:
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
