"""Tables in, a graph folder out: reading, checking and encoding them."""

from weft.pipeline.ingest.ingestion import ingest

__all__ = ["ingest"]
