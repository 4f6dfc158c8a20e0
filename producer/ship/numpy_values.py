"""Values of NumPy on their way to Java: nobody asks for them where NumPy is not loaded.

pyspark asks of each argument of each call whether it is a value of NumPy, and imports its own tests for that, and they
pandas: of a start of Spark 0.7 s of CPU, and twice as much where Python keeps no bytecode.
"""

from __future__ import annotations

import sys
from typing import Any

from py4j import protocol

_ASKING = {"NumpyScalarConverter", "NumpyArrayConverter"}


class _Loaded:
    """A converter that is asked only about values of NumPy.

    :param converter: one of pyspark's.
    """

    def __init__(self, converter: Any) -> None:
        self._converter = converter
        self.convert = converter.convert

    def can_convert(self, value: object) -> bool:
        """Whether it is the converter's."""
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, numpy.generic | numpy.ndarray):
            return False
        return bool(self._converter.can_convert(value))


def convert_only_loaded() -> None:
    """Have pyspark's converters asked only about values of NumPy."""
    converters: list[Any] = protocol.INPUT_CONVERTER
    for place, converter in enumerate(converters):
        if type(converter).__module__ == "pyspark.sql.types" and type(converter).__name__ in _ASKING:
            converters[place] = _Loaded(converter)
