"""The severity numbers of OpenTelemetry, from the numbers that Python's loggers use.

====================  =====  ===============
``logging``           level  severity_number
====================  =====  ===============
below ``DEBUG``       1–9    1–4 (TRACE)
``DEBUG``             10     5
``INFO``              20     9
``WARNING``           30     13
``ERROR``             40     17
``CRITICAL``          50     21 (FATAL)
====================  =====  ===============

Levels in between are numbers in between: OpenTelemetry has four for each ten of Python's.

Source: OpenTelemetry, Logs Data Model, field ``SeverityNumber``.
"""

from __future__ import annotations


def severity_number(level: int) -> int:
    """The number of a level, 1 to 24."""
    return 1 + max(0, min(59, level)) * 2 // 5
