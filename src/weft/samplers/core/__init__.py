"""How edges are drawn, and the blocks and subgraphs that come of it."""
