"""Batches of a graph that several workers hold: asking owners, drawing together, sending batches."""
