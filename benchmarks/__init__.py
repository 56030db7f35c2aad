"""Cases that compare weft with its rivals on the same data in the same run."""

from weft import process

# As the `weft` command does: large tensors in huge pages, threads that sleep while they wait; ours and the
# rivals' alike.
process.prepare()
