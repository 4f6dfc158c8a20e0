"""What the server remembers: projects, logstores, shards and LogGroups, in one SQLite database."""
