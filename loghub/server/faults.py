"""The public names of ``producer.server.faults``."""

from typing import TYPE_CHECKING

from loghub import _names_of

if TYPE_CHECKING:
    from producer.server.faults import *
else:
    __all__, __dir__, __getattr__ = _names_of("producer.server.faults")
