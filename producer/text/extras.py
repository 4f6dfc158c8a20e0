"""Commands that install an extra, in the way in which the package itself was installed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from importlib.metadata import Distribution

_NAME = "loghub-producer"


def how_to_install(extra: str) -> str:
    """Return the command that adds ``extra`` to this installation.

    It uses the same clone, repository, file or package index. An installation without compiled parts stays without
    them, since a compiler would take minutes.
    """
    installed = _installed()
    origin = _origin(installed)
    built_here = origin is not None and not {"dir_info", "vcs_info"}.isdisjoint(origin)
    build = "PRODUCER_BUILD=pure " if built_here and not _is_compiled() else ""
    return f"{build}{_pip(installed)} install {_requirement(extra, origin)}"


def missing(error: ModuleNotFoundError, extra: str) -> ImportError:
    """Return the error for a missing module of an extra."""
    return ImportError(f"{error.name} is not installed: {how_to_install(extra)}", name=error.name)


def is_installed(package: str) -> bool:
    """Return True if a package is installed, without importing it."""
    from importlib.util import find_spec

    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # its parent package is missing as well
        return False


def _installed() -> Distribution | None:
    """Return the metadata of this installation; None for a source tree or archive."""
    from importlib.metadata import PackageNotFoundError, distribution  # most programs do not need it

    try:
        return distribution(_NAME)
    except PackageNotFoundError:
        return None


def _origin(installed: Distribution | None) -> dict[str, Any] | None:
    """Return the origin of an installation; empty for a package index, None for a source tree or archive."""
    import json  # imported here, since most programs do not need it

    try:
        return None if installed is None else dict(json.loads(installed.read_text("direct_url.json") or "{}"))
    except ValueError:
        return None


def _pip(installed: Distribution | None) -> str:
    """Return the program that installed the package: environments of uv have no pip."""
    installer = "" if installed is None else installed.read_text("INSTALLER") or ""
    return "uv pip" if installer.strip() == "uv" else "pip"


def _is_compiled() -> bool:
    from importlib.util import find_spec

    return find_spec("producer.wire._lines") is not None


def _requirement(extra: str, origin: dict[str, Any] | None) -> str:
    from urllib.parse import unquote, urlsplit

    if origin is None:
        return f"'.[{extra}]' in a clone"
    if "vcs_info" in origin:
        return f"'{_NAME}[{extra}] @ {origin['vcs_info'].get('vcs', 'git')}+{origin['url']}'"
    if str(origin.get("url", "")).startswith("file:"):
        path = unquote(urlsplit(origin["url"]).path)
        return f"{'-e ' if origin.get('dir_info', {}).get('editable') else ''}'{path}[{extra}]'"
    return f"'{_NAME}[{extra}]'"
