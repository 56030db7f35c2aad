"""A graph in parts: who owns what, how it is cut, the shard of a worker."""
