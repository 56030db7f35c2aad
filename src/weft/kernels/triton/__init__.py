"""The operators on a GPU, written in Triton: nothing to compile ahead, no wheel to match.

One program works on one row, or on one segment of at most `plan.SEGMENT` edges of a hub, and holds its sum in
registers in float32; hubs are then merged in the order of their segments. There are no atomics on floats: the
same inputs give the same bits. `weft.kernels.gpu` decides whether these forms are used.
"""
