"""Selectors choose the channels for each event."""
