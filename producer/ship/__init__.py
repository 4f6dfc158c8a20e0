"""``producer ship``: ships log files, and fails if a line was not acknowledged.

Portions of files (``files/``, ``lines/``) are sent (``sending``) by tasks of a Spark job (``spark_engine``), also as a
stream (``follow/``), or by processes of this machine (``local_engine``).
"""
