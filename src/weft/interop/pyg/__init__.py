"""PyG's models on weft: its convolutions as layers, its batches, its models on weft's kernels."""
