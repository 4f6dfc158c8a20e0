BEGIN TRANSACTION;
CREATE TABLE consumer_groups (
    id INTEGER PRIMARY KEY,
    logstore INTEGER NOT NULL REFERENCES logstores (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    timeout REAL NOT NULL,
    in_order INTEGER NOT NULL,
    UNIQUE (logstore, name)
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
CREATE TABLE consumers (
    consumer_group INTEGER NOT NULL REFERENCES consumer_groups (id) ON DELETE CASCADE,
    name TEXT NOT NULL,
    seen REAL NOT NULL,
    PRIMARY KEY (consumer_group, name)
);
CREATE TABLE indexes (
    logstore INTEGER PRIMARY KEY REFERENCES logstores (id) ON DELETE CASCADE,
    content TEXT NOT NULL,
    modified REAL NOT NULL
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
    packed BLOB NOT NULL, context TEXT, pack INTEGER,
    UNIQUE (logstore, shard, position)
);
INSERT INTO "log_groups" VALUES(1,2,0,0,1.79536727125885152813e+09,22,1,'',1700000000,1700000000,X'F0070A140880E2CFAA06120C0A076D657373616765120178',NULL,NULL);
INSERT INTO "log_groups" VALUES(2,2,0,1,1.79536727126555681224e+09,22,1,'',1700000000,1700000000,X'F0070A140880E2CFAA06120C0A076D657373616765120179',NULL,NULL);
INSERT INTO "log_groups" VALUES(3,1,2,0,1.7953672712721779346e+09,22,1,'',1700000000,1700000000,X'F0070A140880E2CFAA06120C0A076D657373616765120178',NULL,NULL);
CREATE TABLE logstores (
    id INTEGER PRIMARY KEY,
    project TEXT NOT NULL REFERENCES projects (name),
    name TEXT NOT NULL,
    shard_count INTEGER NOT NULL,
    settings TEXT NOT NULL,
    created REAL NOT NULL,
    sequence_keys INTEGER NOT NULL DEFAULT 0, modified REAL NOT NULL DEFAULT 0,
    UNIQUE (project, name)
);
INSERT INTO "logstores" VALUES(1,'my-project','three',3,'{"ttl": 3650, "shardCount": 3}',1.79536727124247884749e+09,1,1.79536727124247884749e+09);
INSERT INTO "logstores" VALUES(2,'my-project','app-log',1,'{"ttl": 3650, "shardCount": 1}',1.79536727124885392187e+09,1,1.79536727124885392187e+09);
INSERT INTO "logstores" VALUES(3,'my-project','odd',1,'{"ttl": "x"}',1700000000.0,0,1700000000.0);
CREATE TABLE projects (
    name TEXT PRIMARY KEY, description TEXT NOT NULL, created REAL NOT NULL
, modified REAL NOT NULL DEFAULT 0);
INSERT INTO "projects" VALUES('my-project','',1.79536727124247884749e+09,1.79536727124247884749e+09);
CREATE TABLE sequences (
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    hash_key TEXT NOT NULL,
    last INTEGER NOT NULL,
    used REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (logstore, hash_key)
);
INSERT INTO "sequences" VALUES(2,'0a000000000000000000000000000000',5,1.79536727125885152813e+09);
INSERT INTO "sequences" VALUES(1,'f0000000000000000000000000000000',1,1.7953672712721779346e+09);
CREATE TABLE shards (
    logstore INTEGER NOT NULL REFERENCES logstores (id),
    shard INTEGER NOT NULL,
    next INTEGER NOT NULL, begin_key TEXT NOT NULL DEFAULT '', end_key TEXT NOT NULL DEFAULT '', status TEXT NOT NULL DEFAULT 'readwrite', created REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (logstore, shard)
);
INSERT INTO "shards" VALUES(2,0,2,'00000000000000000000000000000000','ffffffffffffffffffffffffffffffff','readwrite',1.79536727124885392187e+09);
INSERT INTO "shards" VALUES(1,2,1,'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','ffffffffffffffffffffffffffffffff','readwrite',1.79536727124247884749e+09);
INSERT INTO "shards" VALUES(1,0,0,'00000000000000000000000000000000','55555555555555555555555555555555','readwrite',1.79536727124247884749e+09);
INSERT INTO "shards" VALUES(3,0,0,'00000000000000000000000000000000','ffffffffffffffffffffffffffffffff','readwrite',1700000000.0);
INSERT INTO "shards" VALUES(1,1,0,'55555555555555555555555555555555','aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa','readwrite',1.79536727124247884749e+09);
CREATE INDEX log_groups_in_order ON log_groups (logstore);
CREATE INDEX sequences_by_age ON sequences (logstore, used);
CREATE INDEX log_groups_in_context ON log_groups (logstore, context, pack) WHERE context IS NOT NULL;
COMMIT;
PRAGMA user_version = 3;
