"""Find objects that are not freed yet."""

import gc
import logging
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import TypeVar

T = TypeVar("T")


def living(kind: type[T]) -> list[T]:
    """Return all objects of a class; ``isinstance`` is avoided, since other tests' objects may raise."""
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def within_reach(things: Iterable[object], beyond: type | tuple[type, ...] = ()) -> list[object]:
    """Return the objects that ``things`` keep alive, up to ``beyond``, without classes and modules."""
    end = (type, FunctionType, ModuleType, logging.Logger, *(beyond if isinstance(beyond, tuple) else (beyond,)))
    found: dict[int, object] = {}
    left = list(things)
    while left:
        thing = left.pop()
        if id(thing) not in found and not issubclass(type(thing), end):
            found[id(thing)] = thing
            left += gc.get_referents(thing)
    return list(found.values())
