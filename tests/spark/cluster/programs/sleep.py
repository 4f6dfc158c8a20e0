"""Two tasks that do not end."""

from __future__ import annotations

import threading

from pyspark import SparkContext

context = SparkContext.getOrCreate()
context.parallelize(range(2), 2).foreach(lambda _: threading.Event().wait())
