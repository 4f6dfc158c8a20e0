"""Whose turn it is, gates of destinations, IO threads, attempts, retries, halves, numbers."""
