"""The operating system's user of this process."""

from __future__ import annotations

import os


def user_name() -> str:
    """Return the user's name, or its number if the system has no name for it, as in many containers."""
    try:
        import pwd  # noqa: PLC0415  # not on every system

        return pwd.getpwuid(os.geteuid()).pw_name
    except (ImportError, KeyError):
        return str(os.geteuid()) if hasattr(os, "geteuid") else os.environ.get("USERNAME", "")
