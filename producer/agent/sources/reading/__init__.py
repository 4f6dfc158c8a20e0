"""Files that are read while they may still change: for sources that read lines of files."""
