"""Random programs of pickle opcodes that name their own values again: for the reader that must survive them.

    python tests/support/opcode_programs.py SEED COUNT FILE

reads that many, each written to FILE, and ends by an error at the first that is neither read nor refused in
one line; whoever starts it limits its time and memory.
"""

import random
import struct
import sys
from pathlib import Path

from weft.datasets.opcodes import read_opcodes
from weft.errors import FormatError

_ATOMS = [
    b"N",
    b"\x88",
    b"K\x00",
    b"K\x07",
    b"J\xff\xff\xff\xff",
    b"\x8a\x09" + b"\x7f" * 9,
    b")",
    b"]",
    b"}",
]
_NAMES = [
    *(
        b"cnumpy\ndtype\n",
        b"cnumpy\nndarray\n",
        b"cnumpy.core.multiarray\n_reconstruct\n",
        b"cposix\nsystem\n",
    ),
    *(b"cnumpy.core.multiarray\nscalar\n", b"cnumpy.core.numeric\n_frombuffer\n", b"c_codecs\nencode\n"),
    *(b"ccollections\ndefaultdict\n", b"cscipy.sparse.csr\ncsr_matrix\n", b"c__builtin__\nbytes\n"),
]
_WORDS = ["u1", "f8", "C", "latin1", "numpy", "dtype", "data", "_shape", "O\n8", "|"]


class Programs:
    """Gives programs; a value is doubled, or wrapped, up to `most` times in a row."""

    def __init__(self, seed: int, most: int) -> None:
        self.draw, self.most, self.noted = random.Random(seed), most, 0

    def program(self) -> bytes:
        """Return a program that leaves one value."""
        self.noted = 0
        return b"\x80\x04" + self.value(5) + b"."

    def value(self, levels: int) -> bytes:
        """Return opcodes that put one value on the stack."""
        ways = [self.atom, self.text, self.name, self.again]
        if levels:
            ways = [*ways, self.note, self.twins, self.wrapped, self.group, self.table, self.call, self.array]
        way = self.draw.choice(ways)
        return way(levels - 1)

    def atom(self, _: int) -> bytes:
        return self.draw.choice(_ATOMS)

    def text(self, _: int) -> bytes:
        word = (self.draw.choice(_WORDS) * self.draw.choice([1, 1, 1, self.most])).encode()
        kinds = [b"X" + struct.pack("<I", len(word)), b"B" + struct.pack("<I", len(word))]
        return self.draw.choice([*kinds, b"\x96" + struct.pack("<Q", len(word))]) + word

    def name(self, levels: int) -> bytes:
        if levels > 0 and self.draw.random() < 0.2:
            return self.value(levels) + self.value(levels) + b"\x93"
        return self.draw.choice(_NAMES)

    def again(self, levels: int) -> bytes:
        return b"h" + bytes([self.draw.randrange(self.noted)]) if self.noted else self.atom(levels)

    def note(self, levels: int) -> bytes:
        made = self.value(levels)
        self.noted = min(self.noted + 1, 250)
        return made + b"q" + bytes([self.noted - 1])

    def twins(self, levels: int) -> bytes:
        made = self.note(levels)
        place = bytes([self.noted - 1])
        return made + (b"h" + place + b"\x86q" + place) * self.draw.randint(1, self.most)

    def wrapped(self, levels: int) -> bytes:
        return self.value(levels) + b"\x85" * self.draw.randint(1, self.most**2)

    def group(self, levels: int) -> bytes:
        held = b"".join(self.value(levels) for _ in range(self.draw.randint(0, 4)))
        many = held + self.again(0) * self.draw.choice([0, 0, self.most**2])
        return self.draw.choice([b"(" + many + b"t", b"(" + many + b"l", b"](" + many + b"e"])

    def table(self, levels: int) -> bytes:
        pairs = [self.value(0) + self.value(levels) for _ in range(self.draw.randint(0, 3))]
        return b"}(" + b"".join(pairs) + b"u"

    def call(self, levels: int) -> bytes:
        given = self.value(levels)
        made = self.draw.choice(_NAMES) + self.draw.choice([given, given + b"\x85", b"(" + given * 3 + b"t"])
        return made + b"R" + (self.value(levels) + b"b" if self.draw.random() < 0.3 else b"")

    def array(self, levels: int) -> bytes:
        """Return a call that is right but for one argument."""
        given = [b"C\x02ab", b"cnumpy\ndtype\nX\x02\x00\x00\x00u1\x85R", b"K\x02\x85", b"X\x01\x00\x00\x00C"]
        given[self.draw.randrange(4)] = self.value(levels)
        return b"cnumpy.core.numeric\n_frombuffer\n(" + b"".join(given) + b"tR"


def read_programs(seed: int, count: int, most: int, file: Path) -> int:
    """Read programs, and return how many gave a value; whatever else than a line one gives is raised."""
    programs, values = Programs(seed, most), 0
    for _ in range(count):
        file.write_bytes(programs.program())
        try:
            read_opcodes(file)
            values += 1
        except FormatError as error:
            told = str(error).removeprefix(str(file))
            if "\n" in told or len(told) > 500:
                raise RuntimeError(f"not one line: {told[:500]}") from error
    return values


if __name__ == "__main__":
    print(read_programs(int(sys.argv[1]), int(sys.argv[2]), 50, Path(sys.argv[3])))
