"""Engines that run relational steps: DuckDB in the process. One file each, entered in `engines`."""
