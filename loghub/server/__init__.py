"""The public names of ``producer.server``."""

from typing import TYPE_CHECKING

from loghub import _names_of

if TYPE_CHECKING:
    from producer.server import *
else:
    __all__, __dir__, __getattr__ = _names_of("producer.server")
