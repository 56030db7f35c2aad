"""Learned rows of nodes without layers, in partitions that come and go (PyTorch-BigGraph)."""
