"""Predictions by the tables of an engine: for graphs that no process can hold."""

from weft.pipeline.infer.inference import Links, Setting, infer_model, infer_run, model_scoring

__all__ = ["Links", "Setting", "infer_model", "infer_run", "model_scoring"]
