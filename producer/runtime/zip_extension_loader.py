"""Zip extension loader: import compiled modules of a package in a zip file, which Python itself does not.

Each one is written to a temporary file while it is loaded. A module for another interpreter or platform has another
name and is not found. If this machine cannot load or write one, it counts as missing.
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
    """Enable imports of a package's compiled modules from its zip file."""
    sys.meta_path.append(_Finder(archive, package))


class _Finder(MetaPathFinder):
    """Last finder for compiled modules.

    :param archive: the reader of the zip file.
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
        """Return the module compiled for this interpreter; None if there is none."""
        if not fullname.startswith(f"{self._package}."):
            return None
        try:
            code = self._archive.get_data(str(Path(*fullname.split("."))) + _SUFFIX)
        except OSError:
            return None
        return ModuleSpec(fullname, _Code(code), origin=self._archive.archive)


class _Code(Loader):
    """Loader of one compiled module.

    :param code: the content of the module's file.
    """

    def __init__(self, code: bytes) -> None:
        self._code = code

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Load the module from a temporary file.

        :raises ImportError: it cannot be written or loaded.
        """
        try:
            # A loaded module's file that cannot be removed stays.
            with tempfile.TemporaryDirectory(prefix="loghub-producer-", ignore_cleanup_errors=True) as folder:
                file = Path(folder, f"module{_SUFFIX}")
                file.write_bytes(self._code)
                self._loader = ExtensionFileLoader(spec.name, str(file))
                return self._loader.create_module(ModuleSpec(spec.name, self._loader, origin=str(file)))
        except OSError as error:
            raise ImportError(f"{spec.name} cannot be loaded from {spec.origin}: {error}") from error

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
