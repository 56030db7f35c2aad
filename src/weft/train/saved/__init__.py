"""The folder of a run: its owner, its checkpoints, and what it came to."""
