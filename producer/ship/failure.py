"""Extracts one line from an error of Spark: the worker's exception without the traces around it."""

from __future__ import annotations

import re

# In a trace, the exception starts at the margin: "producer.spark.errors.DeliveryFailedError: 3 records …".
_OWN = re.compile(r"^(?:\w+\.)*producer\.[\w.]*?(?P<kind>\w+Error): (?P<message>.*)$", re.MULTILINE)
_ANY = re.compile(r"^(?:\w+\.)*(?P<kind>\w*(?:Error|Exception)): (?P<message>.+)$", re.MULTILINE)
_MISSING = re.compile(r"ModuleNotFoundError: No module named '([^']+)'")


def describe(error: BaseException) -> str:
    """Return the reason of a failed job or stream in one line.

    :param error: the exception that Spark raised in the driver.
    """
    text = str(error)
    missing = _MISSING.search(text)
    if missing:
        return (
            f"a Spark worker cannot import {missing[1]}: install loghub-producer where the workers run, "
            "or point PYSPARK_PYTHON to a Python that has it"
        )
    found = list(_OWN.finditer(text)) or list(_ANY.finditer(text))
    if found:
        # The last exception of a trace is the unhandled one.
        return found[-1]["message"] if "producer" in found[-1].group() else found[-1].group()
    return next((line for line in text.splitlines() if line.strip()), type(error).__name__)
