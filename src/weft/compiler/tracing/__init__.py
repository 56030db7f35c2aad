"""A message function as a graph of torch's operators."""
