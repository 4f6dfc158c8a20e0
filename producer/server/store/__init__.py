"""The server's store of projects, logstores, shards and LogGroups, in one SQLite database."""
