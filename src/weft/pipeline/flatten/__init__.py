"""A graph folder in, one record per target out: its neighbourhood, drawn by joins."""

from weft.pipeline.flatten.flattening import flatten

__all__ = ["flatten"]
