"""The `weft` command: a thin front over the Python interface, one file per command."""
