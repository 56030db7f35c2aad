"""Cases that compare weft with its rivals on the same data in the same run."""

import os

# As the `weft` command does: large tensors in huge pages, ours and the rivals' alike.
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")
