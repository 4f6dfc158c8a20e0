"""What was compiled, where the package travels as a zip file: Python itself imports no such module from one.

Each is written to a file for as long as it takes to load it. One that was made for another interpreter or another kind
of machine has another name and is not found; what this machine cannot load, or may write nowhere, is as good as none.
"""

from __future__ import annotations

import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from zipimport import zipimporter

_SUFFIX = str(sysconfig.get_config_var("EXT_SUFFIX"))


def import_from(archive: zipimporter, package: str) -> None:
    """Have compiled modules of a package be imported from its zip file."""
    sys.meta_path.append(_Finder(archive, package))


class _Finder(MetaPathFinder):
    """Asked when nobody else has found a module.

    :param archive: reads the zip file.
    """

    def __init__(self, archive: zipimporter, package: str) -> None:
        self._archive = archive
        self._package = package

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,  # noqa: ARG002  # importlib's signature
        target: ModuleType | None = None,  # noqa: ARG002  # importlib's signature
    ) -> ModuleSpec | None:
        """A module that was compiled for this interpreter; None if there is none."""
        if not fullname.startswith(f"{self._package}."):
            return None
        try:
            code = self._archive.get_data(str(Path(*fullname.split("."))) + _SUFFIX)
        except OSError:
            return None
        return ModuleSpec(fullname, _Code(code), origin=self._archive.archive)


class _Code(Loader):
    """
    :param code: what the module's file holds.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """See :class:`importlib.abc.Loader`.

        :raises ImportError: it cannot be written, or not loaded.
        """
        try:
            # Where the file of a loaded module cannot be removed, it stays.
            with tempfile.TemporaryDirectory(prefix="loghub-producer-", ignore_cleanup_errors=True) as folder:
                file = Path(folder, f"module{_SUFFIX}")
                file.write_bytes(self._code)
                self._loader = ExtensionFileLoader(spec.name, str(file))
                return self._loader.create_module(ModuleSpec(spec.name, self._loader, origin=str(file)))
        except OSError as error:
            raise ImportError(f"{spec.name} cannot be loaded from {spec.origin}: {error}") from error

    def exec_module(self, module: ModuleType) -> None:
        """See :class:`importlib.abc.Loader`."""
        self._loader.exec_module(module)
