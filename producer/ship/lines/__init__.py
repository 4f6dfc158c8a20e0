"""Convert the bytes of files to records: split lines, parse them, and build columns."""
