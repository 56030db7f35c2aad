"""The measuring of a machine, in 20 seconds: rates of kernels, trial runs, processes and links."""
