"""Completion of batches: results, callbacks, and the log of failures."""
