"""From the bytes of a file to the columns of records: lines, what parsers find in them, and records."""
