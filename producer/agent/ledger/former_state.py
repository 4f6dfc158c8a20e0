"""Read the state of agents before ledgers existed, from the directories of a source and its channels.

A channel's notes had a row for each name. For a file channel the row was one number, ``9``: the channel's committed
offset. For a memory channel it was ranges, ``4 6-9``, of which the first begins at 0: data that was delivered, or not
meant for it. A file channel that shared the source's batches with memory channels had ``9 0 6-9``: it was given 6 to 9.
The source noted its channels, as JSON::

    members         {"channels": ["m1", "m2"], "gone": true, "used": ["f", "m1"], "exclusive": true}

``channels`` are in memory. The common ranges of removed channels were noted with the source.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from ...channels.file.store.notes import FileNotes
from .lanes import OF_ALL, PREFIX, Lane, rules_of
from .ranges import intersection, parse_ranges

_Rows = Mapping[str, bytes]


def read_former(
    source: Path, channels: Path, opened: Mapping[str, FileNotes | None], selection: str, *, exclusive: bool
) -> tuple[bytes, dict[str, Lane]] | None:
    """Return the rules and the lanes of a source's last run; None if it never ran.

    :param source: the source's directory.
    :param channels: the parent directory of the channels' directories.
    :param opened: the source's channels, with the notes of those that keep their events.
    :param selection: as for :func:`~.lanes.rules_of`.
    :param exclusive: True if each batch goes to one channel.
    """
    with closing(FileNotes(str(source / "channels"), source.name)) as own:
        raw, gone = own.read("members"), own.items(PREFIX)
    members: dict[str, Any] = {"exclusive": exclusive} if raw is None else json.loads(raw)
    keeping, forgetting = dict[str, _Rows](), dict[str, _Rows]()
    for name in {*members.get("used", opened), *members.get("channels", ())}:
        notes, events = opened.get(name), channels / name / "events"
        if notes is not None:
            keeping[name] = notes.items(f"{PREFIX}{source.name}/")
        elif name not in opened and events.is_dir():
            keeping[name] = _closed(events, source.name)
        else:
            forgetting[name] = _closed(channels / name, source.name)
    if members.get("gone"):
        forgetting["gone"] = gone
    if raw is None and not any((*keeping.values(), *forgetting.values())):
        return None
    if members.get("exclusive", True):
        lanes = {OF_ALL: _shared(list(keeping.values()), list(forgetting.values()))}
    else:
        lanes = {
            name: _lane({of: value.partition(b" ")[0] for of, value in rows.items()}) for name, rows in keeping.items()
        }
        lanes |= {name: _lane(rows) for name, rows in forgetting.items()}
    return rules_of({*keeping, *forgetting}, selection, exclusive=OF_ALL in lanes), dict(sorted(lanes.items()))


def _closed(directory: Path, source: str) -> _Rows:
    with closing(FileNotes(str(directory), directory.name)) as notes:
        return notes.items(f"{PREFIX}{source}/")


def _shared(keeping: Collection[_Rows], forgetting: Collection[_Rows]) -> Lane:
    """Return the common lane of channels that shared a source's batches, each batch in one of them."""
    lane = dict[str, bytes]()
    for name in {name for rows in (*keeping, *forgetting) for name in rows}:
        kept = [rows[name].partition(b" ") for rows in keeping if name in rows]
        if not forgetting:
            lane[name] = b"%d" % max(int(end) for end, _, _ in kept)
            continue
        common = intersection(parse_ranges(rows.get(name, b"0")) for rows in forgetting)
        for start, end in (pair for _, _, given in kept for pair in parse_ranges(given or b"0")):
            common.add(start, end)
        lane[name] = common.dump(sys.maxsize)
    return _lane(lane)


def _lane(rows: _Rows) -> Lane:
    lane = Lane()
    for name, value in rows.items():
        ranges = parse_ranges(value)
        lane.safe[name.removeprefix(PREFIX)] = ranges
        lane.put[name.removeprefix(PREFIX)] = ranges.copy()
        lane.due.add(name.removeprefix(PREFIX))
    return lane
