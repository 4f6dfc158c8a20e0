"""Sinks: components that deliver events."""
