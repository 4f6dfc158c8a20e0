"""How to install an extra: in the way in which the package was installed, which is the one that works."""

from __future__ import annotations

_NAME = "loghub-producer"


def how_to_install(extra: str) -> str:
    """The command that adds ``extra`` to this installation: from the same clone, repository, file, or package index."""
    return f"pip install {_requirement(extra)}"


def missing(error: ModuleNotFoundError, extra: str) -> ImportError:
    """What to raise where the module of an extra is not there."""
    return ImportError(f"{error.name} is not installed: {how_to_install(extra)}", name=error.name)


def _requirement(extra: str) -> str:
    import json  # noqa: PLC0415  # most programs never ask; likewise the next ones
    from importlib.metadata import PackageNotFoundError, distribution  # noqa: PLC0415
    from urllib.parse import unquote, urlsplit  # noqa: PLC0415

    try:
        told = distribution(_NAME).read_text("direct_url.json")
        where = json.loads(told) if told else {}
    except (PackageNotFoundError, ValueError):  # a source tree, or an archive
        return f"'.[{extra}]' in a clone"
    if "vcs_info" in where:
        return f"'{_NAME}[{extra}] @ {where['vcs_info'].get('vcs', 'git')}+{where['url']}'"
    if str(where.get("url", "")).startswith("file:"):
        path = unquote(urlsplit(where["url"]).path)
        return f"{'-e ' if where.get('dir_info', {}).get('editable') else ''}'{path}[{extra}]'"
    return f"'{_NAME}[{extra}]'"
