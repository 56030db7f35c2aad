"""Blocks and what layers ask of them: aggregating, attending, propagating."""
