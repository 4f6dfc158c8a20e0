"""Provide the public names of ``producer`` under a name that rarely collides with a user's own files.

::

    from loghub import Producer
    from loghub.testing import LogHubServer        # the same objects as under producer

Each public module has a file here, in a folder where ``producer`` has one. A type checker reads its ``import *``. The
interpreter looks up each name in the module of ``producer`` when it is used, so that no extra is needed before. An
alias in ``sys.modules`` would need an import hook for submodules, which type checkers cannot follow, and a list of all
names would need a generator.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from os.path import dirname

TYPE_CHECKING = False  # as in producer
if TYPE_CHECKING:
    from collections.abc import Callable

    from producer import *


def _names_of(module: str) -> tuple[list[str], Callable[[], list[str]], Callable[[str], object]]:
    """Return ``__all__``, ``__dir__`` and ``__getattr__`` for the face of a module."""
    real = import_module(module)
    return real.__all__, lambda: real.__all__, lambda name: getattr(real, name)


def _check_not_hidden() -> None:
    """Check that ``producer`` is the package beside this one, before an import runs another file.

    :raises ImportError: ``producer`` is a file or folder of the user's.
    """
    module = sys.modules.get("producer")
    found = getattr(module, "__file__", None) if module else getattr(find_spec("producer"), "origin", None)
    if found is None or dirname(dirname(found)) != dirname(dirname(__file__)):
        raise ImportError(
            f"the package producer, which loghub is another name of, is hidden by {found or 'a folder'}: rename that "
            "file or folder, since Python looks beside the program, and in the current folder, first"
        )


if not TYPE_CHECKING:
    _check_not_hidden()
    __all__, __dir__, __getattr__ = _names_of("producer")
