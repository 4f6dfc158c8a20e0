"""Store: what the files are made of: disk, records and headers, segments, space, encryption, notes."""
