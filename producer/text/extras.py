"""How to install an extra: in the way in which the package was installed, which is the one that works."""

from __future__ import annotations

from typing import Any

_NAME = "loghub-producer"


def how_to_install(extra: str) -> str:
    """The command that adds ``extra`` to this installation: from the same clone, repository, file, or package index,
    and without a compiler where nothing is compiled now, since one package more is not worth minutes of it.
    """
    origin = _origin()
    built_here = origin is not None and not {"dir_info", "vcs_info"}.isdisjoint(origin)
    build = "PRODUCER_BUILD=pure " if built_here and not _is_compiled() else ""
    return f"{build}pip install {_requirement(extra, origin)}"


def missing(error: ModuleNotFoundError, extra: str) -> ImportError:
    """What to raise where the module of an extra is not there."""
    return ImportError(f"{error.name} is not installed: {how_to_install(extra)}", name=error.name)


def _origin() -> dict[str, Any] | None:
    """What this installation was made from; empty for a package index, None if there is no installation."""
    import json  # most programs never ask
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        told = distribution(_NAME).read_text("direct_url.json")
        return dict(json.loads(told)) if told else {}
    except (PackageNotFoundError, ValueError):  # a source tree, or an archive
        return None


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
