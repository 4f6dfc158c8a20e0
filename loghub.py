"""Alias the package ``producer`` by a name that rarely collides with a user's own files.

::

    from loghub import Producer
    from loghub.testing import LogHubServer        # the same objects as under producer

Importing ``loghub.x`` returns ``producer.x``; this module defines nothing else.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from producer import *  # noqa: F403  # for type checkers: every public name

#: Mark this module as a package in whose folders no submodule is searched.
__path__: list[str] = []


def _check_not_hidden() -> None:
    """Check that ``producer`` is the package beside this file.

    :raises ImportError: ``producer`` is a file or folder of the user's.
    """
    module = sys.modules.get("producer")
    found = getattr(module, "__file__", None) if module else getattr(_spec(), "origin", None)
    if found is None or PurePath(found).parent != PurePath(__file__).with_name("producer"):
        raise ImportError(
            f"the package producer, which loghub is another name of, is hidden by {found or 'a folder'}: rename that "
            "file or folder, since Python looks beside the program, and in the current folder, first"
        )


def _spec() -> ModuleSpec | None:
    return importlib.util.find_spec("producer")


class _Same(MetaPathFinder, Loader):
    """An importer that returns the module ``producer.x`` for ``loghub.x``."""

    def find_spec(
        self, fullname: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not fullname.startswith("loghub."):
            return None
        name = fullname.removeprefix("loghub.")
        real = f"producer.{import_module('producer')._MODULES.get(name, name)}"
        if importlib.util.find_spec(real) is None:
            return None
        return ModuleSpec(fullname, self, loader_state=real)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = import_module(str(spec.loader_state))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        # The import system has set the other name.
        spec = module.__spec__
        if spec is not None and isinstance(spec.loader_state, ModuleSpec):
            module.__spec__ = spec.loader_state


_check_not_hidden()
if not any(isinstance(finder, _Same) for finder in sys.meta_path):
    sys.meta_path.insert(0, _Same())  # first: otherwise a folder of producer would be imported as a second copy
__all__ = import_module("producer").__all__


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return getattr(import_module("producer"), name)


def __dir__() -> list[str]:
    return dir(import_module("producer"))
