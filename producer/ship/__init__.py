"""``producer ship``: a Spark job that ships log files, and fails if a line was not acknowledged."""
