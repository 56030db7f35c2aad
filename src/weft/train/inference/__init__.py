"""Predictions of a trained model for any nodes, layer by layer or by samples."""
