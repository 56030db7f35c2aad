"""Edges into a row lie on several workers: partial results are merged, at once or in stages."""
