"""Log: transactions become runs of records, are appended to segments, and synced together."""
