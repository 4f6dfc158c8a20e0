"""Objects that nobody has freed yet."""

import gc
import logging
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import TypeVar

T = TypeVar("T")


def living(kind: type[T]) -> list[T]:
    """All objects of that class or one below it.

    None is asked for its class: other tests leave objects behind that answer with an exception.
    """
    return [one for one in gc.get_objects() if issubclass(type(one), kind)]


def within_reach(things: Iterable[object], beyond: type | tuple[type, ...] = ()) -> list[object]:
    """All that ``things`` keep alive, and they themselves: what other threads make meanwhile is not among them.

    :param beyond: where it ends, apart from what is there once, as classes, functions, modules and loggers are.
    """
    end = (type, FunctionType, ModuleType, logging.Logger, *(beyond if isinstance(beyond, tuple) else (beyond,)))
    found: dict[int, object] = {}
    left = list(things)
    while left:
        thing = left.pop()
        if id(thing) not in found and not issubclass(type(thing), end):
            found[id(thing)] = thing
            left += gc.get_referents(thing)
    return list(found.values())
