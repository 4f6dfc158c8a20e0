"""Batches while they fill: memory, open batches, streams and their order."""
