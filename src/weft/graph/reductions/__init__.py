"""Reductions: how many values of a row become one; see `base`."""

from weft.graph.reductions.base import ByRow, Contribution, RowReduction, Running, reduction, reductions

__all__ = ["ByRow", "Contribution", "RowReduction", "Running", "reduction", "reductions"]
