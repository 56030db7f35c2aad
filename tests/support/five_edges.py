"""Five edges that the tests of graphs share."""

EDGES = [[0, 1, 2, 0, 2], [1, 2, 0, 2, 2]]  # 0→1, 1→2, 2→0, 0→2, 2→2
