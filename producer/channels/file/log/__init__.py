"""Log: encode transactions as runs of records, append them to segments, and sync them in groups."""
