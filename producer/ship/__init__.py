"""Ship log files with ``producer ship``, which fails if a line was not acknowledged.

Portions of files (``files/``, ``lines/``) are sent (``sending``) by the tasks of a Spark job (``spark_engine``), by a
Spark stream (``follow/``), or by processes of this machine (``local_engine``).
"""
