"""Outcomes become results: callbacks, and what is logged of failures."""
