"""Render the page: topology, figures, refused events, and the last lines of the log.

The server renders all of it, so it works without scripts. A script fetches the page again every two seconds, and
replaces the parts that changed. The page loads no other file.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from importlib.resources import files

from ...text.printable import shown
from .recent_log import LEVELS
from .tables import Figures, Table, lag_of, rates, state_of, tables, waiting

_PLACE = re.compile(r"@([A-Z]+)@")
#: Maximum number of characters of a body or a header that are shown.
_MOST_SHOWN = 500
#: Classes of columns with texts, by title; the others are numbers.
_CLASSES = {
    **dict.fromkeys(("Source", "Channel", "Sink"), "name"),
    **dict.fromkeys(("Type", "State"), "text"),
    **dict.fromkeys(("Last error", "Reason"), "error"),
    "Time": "time",
    "Event": "event",
}
_BAD = ("waiting", "CLOSED", "new", "stopped")


def page(before: Figures, now: Figures, search: tuple[str, str], no_events: str, nonce: str) -> str:
    """Return the HTML.

    :param before: earlier figures, for rates; ``now`` to show no rates.
    :param now: the figures, with the lines of the log to show.
    :param search: text and level of the search for these lines.
    :param no_events: why the page shows no events; empty if it shows them.
    :param nonce: the nonce that allows the page's own script and style.
    """
    text, level = search
    values = {
        "NONCE": nonce,
        "AGENT": _escaped(now["agent"]),
        "HEALTH": _health(now),
        "TOPOLOGY": _topology(before, now),
        "TABLES": "".join(map(_table, tables(before, now))),
        "REFUSED": _refused(now, no_events),
        "TEXT": _escaped(text),
        "LEVELS": "".join(f"<option{' selected' * (each == level)}>{each}</option>" for each in LEVELS),
        "LOG": _log(now["log"]),
    }
    template = files(__package__).joinpath("page.html").read_text(encoding="utf-8")  # the package may be in a zip file
    return _PLACE.sub(lambda place: values[place[1]], template)  # in one pass: a value may contain such a text


def moment(time: float) -> str:
    """Return a time in the time zone of this machine."""
    return datetime.fromtimestamp(time).astimezone().isoformat(" ", "seconds")


def _escaped(text: object) -> str:
    return html.escape(shown(str(text)))


def _tagged(tag: str, kind: str, text: object) -> str:
    return f'<{tag} class="{kind}">{_escaped(text)}</{tag}>' if text else ""


def _health(now: Figures) -> str:
    good = now["ready"] and not now["notes"]
    said = "; ".join([*(["ready"] if now["ready"] else now["reasons"]), *now["notes"]])
    return _tagged("span", "ok" if good else "bad", said)


# -- topology


def _topology(before: Figures, now: Figures) -> str:
    """Return a row for each channel: the components that put events into it, itself, and those that take from it."""
    speeds = {kind: rates(kind, before, now) for kind in ("sources", "channels", "sinks")}
    return "".join(_flow(channel, now, speeds) for channel in now["channels"])


def _flow(channel: Figures, now: Figures, speeds: Mapping[str, Mapping[str, str]]) -> str:
    name, sinks = channel["name"], [each for each in now["sinks"] if each["group"] is None]
    sources = [each for each in now["sources"] if name in each["channels"]]
    senders = [each for each in sinks if each["dead_letters"] == name]
    takers = [each for each in sinks if each["channel"] == name]
    fill = f'<meter value="{min(1.0, channel["fill"]):.3f}" aria-label="fill level">{channel["fill"]:.0%}</meter>'
    waits = f"{waiting(channel)[0]} waiting, {waiting(channel)[1]}"
    left = [
        *(_box(each, speeds["sources"], _steps(each), lag_of(each) and f"lag {lag_of(each)}") for each in sources),
        *(f'<div class="box letters">refused events of {_tagged("b", "name", each["name"])}</div>' for each in senders),
    ]
    right = [_box(each, speeds["sinks"], *_ends(each, now["sinks"])) for each in takers]
    middle = _box(channel, speeds["channels"], waits, more=fill)
    flows = any(speeds["sources"][each["name"]] not in ("", "0") for each in sources)
    drains = any(speeds["sinks"][each["name"]] not in ("", "0") for each in takers)
    parts = (_side(left), _arrow(left, flows=flows), middle, _arrow(right, flows=drains), _side(right))
    return f"<li>{''.join(parts)}</li>\n"


def _side(boxes: Sequence[str]) -> str:
    return f'<div class="side">{"".join(boxes)}</div>'


def _arrow(boxes: Sequence[str], *, flows: bool) -> str:
    kind = "arrow flows" if flows else "arrow"
    return f'<div class="{kind}" role="img" aria-label="to"></div>' if boxes else '<div class="gap"></div>'


def _box(row: Figures, speeds: Mapping[str, str], *lines: str, more: str = "") -> str:
    state, speed = state_of(row), speeds[row["name"]]
    is_bad = state in _BAD or not row.get("delivers", True)
    first = f"{state}, {speed} events/s" if speed else state
    said = "".join(_tagged("small", "line", line) for line in (row["type"], first, *lines))
    return f'<div class="box{" bad" * is_bad}">{_tagged("b", "name", row["name"])}{said}{more}</div>'


def _steps(source: Figures) -> str:
    """Return the interceptors and the selector that the events of a source pass."""
    selector = [f"{source['selector']} selector"] if len(source["channels"]) > 1 else []
    return "".join(f"→ {step} " for step in (*source["interceptors"], *selector)).rstrip()


def _ends(sink: Figures, sinks: Sequence[Figures]) -> Iterator[str]:
    """Yield the members of a group, and the channel of dead letters."""
    for member in sinks:
        if member["group"] == sink["name"]:
            yield f"• {member['name']} ({member['type']})"
    if sink["dead_letters"] is not None:
        yield f"refused events → {sink['dead_letters']}"


# -- tables


def _table(table: Table) -> str:
    return _html_table(table.head, ([_escaped(cell) for cell in row] for row in table.rows))


def _html_table(titles: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table.

    :param rows: the cells as HTML.
    """
    head = "".join(f'<th scope="col" class="{_class(title)}">{title}</th>' for title in titles)
    body = "".join(f"<tr>{''.join(map(_cell, titles, row))}</tr>\n" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>\n"


def _class(title: str) -> str:
    return _CLASSES.get(title, "number")


def _cell(title: str, cell: str) -> str:
    return f'<td class="{_class(title)}" data-title="{title}">{cell}</td>'


# -- refused events and the log


def _refused(now: Figures, no_events: str) -> str:
    """Return tables of the reasons and the last events of all sinks; empty if none was refused."""
    sinks = [each for each in now["sinks"] if each["refused"]["reasons"]]
    if not sinks:
        return ""
    reasons = (row for sink in sinks for row in _reasons(sink))
    counts = _html_table(("Sink", "Events", "Reason"), reasons)
    events = [_event(sink["name"], each) for sink in sinks for each in sink["refused"].get("sample", ())]
    sample = _html_table(("Sink", "Time", "Reason", "Event"), events) if events else ""
    return f"<h2>Refused events</h2>{counts}{sample}{_tagged('p', 'quiet', no_events)}"


def _reasons(sink: Figures) -> Iterator[Sequence[str]]:
    refused = sink["refused"]
    older = [{"events": refused["older"], "reason": "older reasons"}] if refused["older"] else []
    for each in (*refused["reasons"], *older):
        yield _escaped(sink["name"]), str(each["events"]), _escaped(each["reason"])


def _event(sink: str, event: Figures) -> Sequence[str]:
    headers = (f"{name} = {value}"[:_MOST_SHOWN] for name, value in event["headers"].items())
    lines = "".join(_tagged("small", "line", line) for line in headers)
    body = _tagged("code", "body", event["body"][:_MOST_SHOWN])
    return _escaped(sink), moment(event["time"]), _escaped(event["reason"]), body + lines


def _log(lines: Sequence[Figures]) -> str:
    if not lines:
        return '<p class="quiet">no lines</p>'
    return f"<ol>{''.join(map(_line, lines))}</ol>"


def _line(line: Figures) -> str:
    kind = "" if line["level"] == "INFO" else "bad"
    said = _tagged("span", kind, f"{line['level']} {line['text']}")
    return f"<li>{_tagged('time', 'quiet', moment(line['time']))} {said}</li>\n"
