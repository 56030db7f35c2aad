"""The data plane: tables in, a graph folder out, and what is done to graphs that no process can hold.

It meets the training plane in files (`weft.format`), not in its code: nothing here needs torch, but for
inference, which runs models.
"""
