"""Reading of files that may still change, for sources that read lines of files."""
