"""List the component types and describe each one, from the declarations of its options."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

from ...model.options import options_of
from .flume_differences import DIFFERENCES
from .options import flume_name, nearest
from .registry import BUILT_IN, canonical, class_of, plugged_in

_WIDTH = 100


def overview() -> str:
    """List all types by kind."""
    lines = [f"{kind}: {', '.join(sorted({*known, *plugged_in(kind)}))}" for kind, known in BUILT_IN.items()]
    return "\n".join(
        [*lines, "", "producer agent explain TYPE describes one type; write kind.type if two kinds have it."]
    )


def explain(name: str) -> str:
    """Describe a type: its options with their defaults, rules and Flume names.

    :param name: a type name of the agent or of Flume; ``sinks.http`` selects one kind.
    :raises LookupError: if no such type exists.
    """
    kind, _, rest = name.partition(".")
    asked = {kind: rest} if kind in BUILT_IN and rest else dict.fromkeys(BUILT_IN, name)
    found = [(kind, canonical(kind, each)) for kind, each in asked.items() if _is_known(kind, canonical(kind, each))]
    if not found:
        known = sorted({each for kind in asked for each in (*BUILT_IN[kind], *plugged_in(kind))})
        raise LookupError(f"there is no type {name!r}{nearest(name, known)}")
    return "\n\n".join("\n".join(_description(kind, each)) for kind, each in found)


def _is_known(kind: str, name: str) -> bool:
    return name in BUILT_IN[kind] or name in plugged_in(kind)


def _description(kind: str, name: str) -> Iterator[str]:
    yield f"{kind}.{name}"
    try:
        cls = class_of(kind, name)
    except ImportError as error:
        yield f"  needs {error.name}, which is not installed"
        return
    except LookupError as error:
        yield f"  {error.args[0]}"
        return
    yield from textwrap.wrap(summary_of(cls), _WIDTH, initial_indent="  ", subsequent_indent="  ")
    for each in options_of(cls.Options).values():
        yield ""
        default = "required" if each.default is ... else f"default {each.default!r}"
        yield f"  {each.name}: {each.words(text=True)}, {default}"
        text = f"{each.doc}; in Flume's files: {flume_name(each)}{_times(each.scale)}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent="      ", subsequent_indent="      ")
    yield from _differences(f"{kind}.{name}")


def _differences(name: str) -> Iterator[str]:
    rows = DIFFERENCES.get(name, ())
    if rows:
        yield ""
        yield "  Differences from Flume:"
    for theirs, ours in rows:
        text = f"Flume: {theirs}; here: {ours}"
        yield from textwrap.wrap(text, _WIDTH, initial_indent="    * ", subsequent_indent="      ")


def summary_of(cls: type) -> str:
    """Return the first paragraph of a component's docstring, on one line."""
    text = inspect.getdoc(cls) or ""
    return " ".join(text.strip().partition("\n\n")[0].split()).replace("``", "")


def _times(scale: float) -> str:
    return "" if scale == 1 else f", times {scale}"
