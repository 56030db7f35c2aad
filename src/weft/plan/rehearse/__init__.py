"""A run without its arithmetic: the code of a real run, on tensors that have shapes and no values."""
