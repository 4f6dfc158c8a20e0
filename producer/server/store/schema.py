"""The tables of the store, and how those of an earlier version become these.

``projects`` and ``logstores`` are what they say. A LogGroup is a row of ``log_groups``: its place (logstore, shard,
position in the shard), when it was received, what a search needs to skip it, and its encoded bytes as one lz4 block.
``shards`` has the position that the next LogGroup of a shard will get, which outlives the LogGroups that expire.
``sequences`` has the last sequence number of each key of a logstore and when it was used; ``logstores.sequence_keys``
counts them, because counting rows takes as long as there are rows.

Times are Unix seconds. Projects are written in lower case. The version stands in SQLite's ``user_version``; 0 is the
version before there was one, which had neither ``shards``, ``sequences.used`` nor ``logstores.sequence_keys``; version
1 had projects as clients wrote them.
"""

from __future__ import annotations

import sqlite3

from ..errors import ServerStartError

VERSION = 2

_TABLES = """
CREATE TABLE projects (
    name TEXT PRIMARY KEY, description TEXT NOT NULL, created REAL NOT NULL
);
CREATE TABLE logstores (
    id INTEGER PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects (name),
    name TEXT NOT NULL,
    shard_count INTEGER NOT NULL,
    settings TEXT NOT NULL,
    created REAL NOT NULL,
    sequence_keys INTEGER NOT NULL DEFAULT 0,
    UNIQUE (project, name)
);
CREATE TABLE log_groups (
    id INTEGER PRIMARY KEY,
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    shard INTEGER NOT NULL,
    position INTEGER NOT NULL,
    received REAL NOT NULL,
    raw_size INTEGER NOT NULL,
    logs INTEGER NOT NULL,
    topic TEXT NOT NULL,
    min_time INTEGER NOT NULL,
    max_time INTEGER NOT NULL,
    packed BLOB NOT NULL,
    UNIQUE (logstore, shard, position)
);
CREATE TABLE sequences (
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    hash_key TEXT NOT NULL,
    last INTEGER NOT NULL,
    used REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (logstore, hash_key)
);
"""
_TO_VERSION_1 = """
ALTER TABLE logstores ADD COLUMN sequence_keys INTEGER NOT NULL DEFAULT 0;
ALTER TABLE sequences ADD COLUMN used REAL NOT NULL DEFAULT 0;
"""
_SHARDS_AND_INDEXES = """
CREATE TABLE shards (
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    shard INTEGER NOT NULL,
    next INTEGER NOT NULL,
    PRIMARY KEY (logstore, shard)
);
INSERT INTO shards SELECT logstore, shard, MAX(position) + 1 FROM log_groups GROUP BY logstore, shard;
UPDATE sequences SET used = CAST(strftime('%s', 'now') AS REAL);
UPDATE logstores SET sequence_keys = (SELECT COUNT(*) FROM sequences WHERE logstore = logstores.id);
CREATE INDEX log_groups_in_order ON log_groups (logstore);
CREATE INDEX sequences_by_age ON sequences (logstore, used);
"""
# Of two logstores that only the case of their project tells apart, the other one stays as it is.
_TO_VERSION_2 = """
INSERT OR IGNORE INTO projects SELECT lower(name), description, created FROM projects;
UPDATE OR IGNORE logstores SET project = lower(project);
DELETE FROM projects WHERE name != lower(name) AND name NOT IN (SELECT project FROM logstores);
"""


def prepare(connection: sqlite3.Connection) -> None:
    """Make the tables, or make them what they are today.

    :raises ServerStartError: a later version of this package made them.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise ServerStartError(
            f"the data is of version {version}, and this package knows version {VERSION}: use the package that wrote"
            " it, or another directory"
        )
    if version < VERSION:
        known = "SELECT 1 FROM sqlite_master WHERE name = 'log_groups'"
        script = _TO_VERSION_1 if connection.execute(known).fetchone() else _TABLES
        first = f"{script}{_SHARDS_AND_INDEXES}" if version == 0 else ""
        connection.executescript(f"BEGIN;{first}{_TO_VERSION_2}PRAGMA user_version = {VERSION};COMMIT;")
