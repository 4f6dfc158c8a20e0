"""Selectors: which channels get which events."""
