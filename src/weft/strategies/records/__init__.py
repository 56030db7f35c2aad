"""Batches from files of flattened neighbourhoods; no graph is held."""
