"""The public names of ``producer.agent.testing``."""

from typing import TYPE_CHECKING

from loghub import _names_of

if TYPE_CHECKING:
    from producer.agent.testing import *
else:
    __all__, __dir__, __getattr__ = _names_of("producer.agent.testing")
