"""The demonstration of ``make run``: log files are shipped, and every line is found again."""
