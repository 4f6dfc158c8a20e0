"""The tables of the store, and how those of an earlier version become these.

``projects`` and ``logstores`` are what they say. A LogGroup is a row of ``log_groups``: its place (logstore, shard,
position in the shard), when it was received, what a search needs to skip it, and its encoded bytes as one lz4 block.
``log_groups.context`` and ``pack`` are the two parts of a pack id, by which the neighbours of a log are found; NULL
where there is none. ``shards`` has the keys that each shard takes, whether it still does (``readwrite``) or was split
or merged (``readonly``), and the position that its next LogGroup will get, which outlives the LogGroups that expire.
``logstores.shard_count`` counts those that take logs.
``log_blocks`` has sums of each 1024 positions of a shard, ``is_whole`` as long as no row of them was removed.
``sequences`` has the last sequence number of each key of a logstore and when it was used; ``logstores.sequence_keys``
counts them, because counting rows takes as long as there are rows. ``indexes`` has what clients have configured, as
JSON. A consumer group has the ``consumers`` that were heard of, and for each shard a row of ``consumer_shards``: its
checkpoint, and which consumer has it; ``released`` says that this one shall give it up, and has not yet done so.

Times are Unix seconds. Projects are written in lower case. The version stands in SQLite's ``user_version``; 0 is the
version before there was one, which had neither ``shards``, ``sequences.used`` nor ``logstores.sequence_keys``; version
1 had projects as clients wrote them; version 2 had shards only where something had been written, always of equal
ranges, and neither contexts nor indexes nor consumer groups; version 3 had no ``log_blocks``.
"""

from __future__ import annotations

import sqlite3

from ..errors import ServerStartError
from .shards import bound_between

VERSION = 4

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

_TO_VERSION_3 = """
ALTER TABLE projects ADD COLUMN modified REAL NOT NULL DEFAULT 0;
ALTER TABLE logstores ADD COLUMN modified REAL NOT NULL DEFAULT 0;
UPDATE projects SET modified = created;
UPDATE logstores SET modified = created;
ALTER TABLE log_groups ADD COLUMN context TEXT;
ALTER TABLE log_groups ADD COLUMN pack INTEGER;
CREATE INDEX log_groups_in_context ON log_groups (logstore, context, pack) WHERE context IS NOT NULL;
ALTER TABLE shards ADD COLUMN begin_key TEXT NOT NULL DEFAULT '';
ALTER TABLE shards ADD COLUMN end_key TEXT NOT NULL DEFAULT '';
ALTER TABLE shards ADD COLUMN status TEXT NOT NULL DEFAULT 'readwrite';
ALTER TABLE shards ADD COLUMN created REAL NOT NULL DEFAULT 0;
WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < 255)
INSERT OR IGNORE INTO shards (logstore, shard, next)
    SELECT id, n, 0 FROM logstores JOIN numbers ON n < shard_count;
UPDATE shards SET (begin_key, end_key, created) = (
    SELECT bound_between(shard, shard_count), bound_between(shard + 1, shard_count), logstores.created
    FROM logstores WHERE logstores.id = shards.logstore
);
CREATE TABLE indexes (
    logstore INTEGER PRIMARY KEY REFERENCES logstores (id) ON DELETE CASCADE,
    content TEXT NOT NULL,
    modified REAL NOT NULL
);
CREATE TABLE consumer_groups (
    id INTEGER PRIMARY KEY,
    logstore INTEGER NOT NULL REFERENCES logstores (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    timeout REAL NOT NULL,
    in_order INTEGER NOT NULL,
    UNIQUE (logstore, name)
);
CREATE TABLE consumers (
    consumer_group INTEGER NOT NULL REFERENCES consumer_groups (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    seen REAL NOT NULL,
    PRIMARY KEY (consumer_group, name)
);
CREATE TABLE consumer_shards (
    consumer_group INTEGER NOT NULL REFERENCES consumer_groups (id) ON DELETE CASCADE,
    shard INTEGER NOT NULL,
    owner TEXT,
    released INTEGER NOT NULL DEFAULT 0,
    checkpoint TEXT NOT NULL DEFAULT '',
    updated REAL NOT NULL DEFAULT 0,
    updater TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (consumer_group, shard)
);
"""
_TO_VERSION_4 = """
CREATE TABLE log_blocks (
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    shard INTEGER NOT NULL,
    block INTEGER NOT NULL,
    first REAL NOT NULL,
    last REAL NOT NULL,
    logs INTEGER NOT NULL,
    raw_size INTEGER NOT NULL,
    min_time INTEGER NOT NULL,
    max_time INTEGER NOT NULL,
    is_whole INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (logstore, shard, block)
);
INSERT INTO log_blocks
    SELECT logstore, shard, position / 1024, MIN(received), MAX(received), SUM(logs), SUM(raw_size), MIN(min_time),
        MAX(max_time), 1
    FROM log_groups GROUP BY 1, 2, 3;
"""
_TO_VERSION = {2: _TO_VERSION_2, 3: _TO_VERSION_3, 4: _TO_VERSION_4}


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
        connection.create_function("bound_between", 2, bound_between, deterministic=True)
        steps = "".join(step for number, step in _TO_VERSION.items() if number > version)
        connection.executescript(
            f"BEGIN;{_first_step(connection, version)}{steps}PRAGMA user_version = {VERSION};COMMIT;"
        )


def _first_step(connection: sqlite3.Connection, version: int) -> str:
    if version:
        return ""
    known = "SELECT 1 FROM sqlite_master WHERE name = 'log_groups'"
    script = _TO_VERSION_1 if connection.execute(known).fetchone() else _TABLES
    return f"{script}{_SHARDS_AND_INDEXES}"
