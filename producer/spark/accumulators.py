"""Accumulators of what can be added: Spark's way to have figures of tasks that ended well."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.accumulators import AccumulatorParam

_T = TypeVar("_T")


class SumParam(AccumulatorParam[_T]):
    """Adds values of a class, in place where they have ``+=``.

    :param zero: makes a value that adds nothing.
    """

    def __init__(self, zero: Callable[[], _T]) -> None:
        self._zero = zero

    def zero(self, value: _T) -> _T:
        """See :class:`pyspark.accumulators.AccumulatorParam`."""
        return self._zero()

    def addInPlace(self, value1: _T, value2: _T) -> _T:
        """See :class:`pyspark.accumulators.AccumulatorParam`."""
        value1 += value2  # type: ignore[operator]  # the values have +=
        return value1
