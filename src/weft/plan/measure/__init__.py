"""The measuring of a machine: rates of kernels, trial runs, processes and links."""
