"""Start the program."""

from __future__ import annotations

from .engine import main

main()
