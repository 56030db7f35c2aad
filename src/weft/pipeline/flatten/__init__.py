"""A graph folder in, a record a target out: its neighbourhood, drawn by joins."""

from weft.pipeline.flatten.flattening import flatten

__all__ = ["flatten"]
