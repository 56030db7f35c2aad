"""Batches on a GPU: drawn there, padded to few sizes, copied beside the work."""
