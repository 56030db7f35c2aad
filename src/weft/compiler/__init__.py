"""Functions of an edge, compiled: trace, annotate, rewrite, lower, run."""
