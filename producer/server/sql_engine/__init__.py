"""The program that runs SQL statements in a process of its own: ``python -m sql_engine`` (:mod:`.engine`)."""
