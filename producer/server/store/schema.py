"""Tables of the store, and their upgrades from earlier versions.

A LogGroup is a row of ``log_groups``: its place (logstore, shard, position), the time of receipt, facts that let a
search skip it, and its encoded bytes as one lz4 block. ``log_groups.context`` and ``pack`` are the two parts of a pack
id, by which a log's neighbours are found; NULL without a pack id.

``shards`` has the key range of each shard and its status: ``readwrite``, or ``readonly`` after a split or merge. It
also has the position of the shard's next LogGroup, which outlives the LogGroups that expire. ``logstores.shard_count``
counts the shards that take writes. ``log_blocks`` has sums of each 1024 positions of a shard; ``is_whole`` holds until
a row of the block is removed.

``sequences`` has the last sequence number of each key of a logstore, and the time of its use.
``logstores.sequence_keys`` counts them, since counting rows takes time in proportion. ``indexes`` has the
configurations of clients, as JSON. A consumer group has live ``consumers``, and a row of ``consumer_shards`` for each
shard: its checkpoint and its owner. ``released`` marks a shard that its owner is to release, and has not yet.

Times are Unix seconds. Projects are in lower case. The version is SQLite's ``user_version``:

* 0, before there was a number, had neither ``shards``, ``sequences.used`` nor ``logstores.sequence_keys``;
* 1 had projects as clients wrote them;
* 2 had shards only after a write, always of equal ranges, and neither contexts nor indexes nor consumer groups;
* 3 had no ``log_blocks``.
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
# Of two logstores whose projects differ in case only, the second stays as it is.
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
    """Create the tables, or upgrade them.

    :raises ServerStartError: a later version of this package made them.
    """
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version > VERSION:
        raise ServerStartError(
            f"the data has version {version}, and this package supports up to {VERSION}: use the package that wrote"
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
