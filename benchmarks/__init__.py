"""Cases that compare weft with its rivals on the same data in the same run."""

from weft.cli import memory

# As the `weft` command does: large tensors in huge pages, ours and the rivals' alike.
memory.prepare()
