"""Predictions by the tables of an engine: for graphs that no process can hold."""

from weft.pipeline.infer.run import Setting, infer_model, infer_run, model_scoring

__all__ = ["Setting", "infer_model", "infer_run", "model_scoring"]
