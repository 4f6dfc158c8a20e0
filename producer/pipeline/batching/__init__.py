"""Memory, open batches, what is cut where, streams and their order."""
