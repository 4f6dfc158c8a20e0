"""Spark accumulators for values that can be added, such as the metrics of successful tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pyspark.accumulators import AccumulatorParam

_T = TypeVar("_T")


class SumParam(AccumulatorParam[_T]):
    """An accumulator parameter that adds values with ``+=``.

    :param zero: the function that makes the initial value.
    """

    def __init__(self, zero: Callable[[], _T]) -> None:
        self._zero = zero

    def zero(self, value: _T) -> _T:
        return self._zero()

    def addInPlace(self, value1: _T, value2: _T) -> _T:
        value1 += value2  # type: ignore[operator]  # the values have +=
        return value1
