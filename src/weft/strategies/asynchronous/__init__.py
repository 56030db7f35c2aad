"""Intervals of nodes that train without waiting for each other: bounded asynchrony, and tensor workers."""
