"""Processes without state that multiply rows with weights for others: Dorylus's lambdas, on this machine."""
