"""Code of the user's own in a run: models, losses and metrics, by name and as plain values."""
