"""Objects that nobody has freed yet."""

from __future__ import annotations

import gc
from typing import TypeVar

T = TypeVar("T")


def living(kind: type[T]) -> list[T]:
    """All objects of that class or one below it.

    None is asked for its class: other tests leave objects behind that answer with an exception.
    """
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]
