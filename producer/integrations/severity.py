"""Severities for all integrations: OpenTelemetry's numbers, and Python's names in upper case.

====================  =====  ===============
``severity_text``     level  severity_number
====================  =====  ===============
below ``DEBUG``       1–9    1–4 (TRACE)
``DEBUG``             10     5
``INFO``              20     9
``WARNING``           30     13
``ERROR``             40     17
``CRITICAL``          50     21 (FATAL)
====================  =====  ===============

Levels in between get numbers in between: OpenTelemetry has four numbers for ten of Python's levels. They are defined in
OpenTelemetry's "Logs Data Model", field ``SeverityNumber``.
"""

from __future__ import annotations

import logging

#: Other names of levels.
_SYNONYMS = {"WARN": "WARNING", "FATAL": "CRITICAL", "ERR": "ERROR", "EXCEPTION": "ERROR", "MSG": "INFO"}
_LEVELS = {"TRACE": 5, **{name: getattr(logging, name) for name in ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")}}


def severity_number(level: int) -> int:
    """Return the number of a level, 1 to 24."""
    return 1 + max(0, min(59, level)) * 2 // 5


def severity_text(name: str) -> str:
    """Return the common name of a level."""
    upper = name.upper()
    return _SYNONYMS.get(upper, upper)


def number_of_name(name: str) -> int:
    """Return the number of a level by its name; that of ``INFO`` for an unknown name."""
    return severity_number(_LEVELS.get(severity_text(name), logging.INFO))
