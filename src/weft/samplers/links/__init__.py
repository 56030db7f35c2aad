"""Batches of links in the words of PyG."""
