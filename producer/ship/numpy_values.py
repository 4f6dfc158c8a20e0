"""Makes pyspark check arguments for NumPy values only if NumPy is loaded.

pyspark checks each argument of each call, and imports its own tests and pandas for that. This takes 0.7 s of CPU at the
start of Spark, and twice as much without cached bytecode.
"""

from __future__ import annotations

import sys
from typing import Any

from py4j import protocol

_CONVERTERS = {"NumpyScalarConverter", "NumpyArrayConverter"}


class _Loaded:
    """A converter that is called only for NumPy values.

    :param converter: a converter of pyspark.
    """

    def __init__(self, converter: Any) -> None:
        self._converter = converter
        self.convert = converter.convert

    def can_convert(self, value: object) -> bool:
        """Return True if the value is one of NumPy that the converter accepts."""
        numpy = sys.modules.get("numpy")
        if numpy is None or not isinstance(value, numpy.generic | numpy.ndarray):
            return False
        return bool(self._converter.can_convert(value))


def convert_only_loaded() -> None:
    """Replace pyspark's converters by ones that are called only for NumPy values."""
    converters: list[Any] = protocol.INPUT_CONVERTER
    for place, converter in enumerate(converters):
        if type(converter).__module__ == "pyspark.sql.types" and type(converter).__name__ in _CONVERTERS:
            converters[place] = _Loaded(converter)
