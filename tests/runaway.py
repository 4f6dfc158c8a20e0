"""A pattern that runs away, and the text on which it does."""

from __future__ import annotations

#: A search for it in ENDLESS would take years; it matches ``aa``.
RUNAWAY = r"(?:a|aa)+$"
ENDLESS = "a" * 100 + "!"
