"""Define a pattern with exponential backtracking, and a text that triggers it."""

from __future__ import annotations

#: A search for it in ENDLESS would take years; it matches ``aa``.
RUNAWAY = r"(?:a|aa)+$"
ENDLESS = "a" * 100 + "!"
