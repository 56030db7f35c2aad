"""Layers in stages, each stage on its workers, micro-batches one behind the other (GPipe, PipeDream)."""
