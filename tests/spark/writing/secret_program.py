"""Writes with a secret among the options, in a session with an event log, and prints the plan and an error."""

from __future__ import annotations

import contextlib
import json
import os

from pyspark.sql import SparkSession

from producer.spark.session import build_session

options = json.loads(os.environ["OPTIONS"])
SparkSession.builder.config("spark.eventLog.enabled", "true").config("spark.eventLog.dir", os.environ["EVENTS"])
spark = build_session(master="local[1]", app_name="secrets")
assert spark.conf.get("spark.eventLog.enabled") == "true"
data = spark.range(10)
data.write.format("loghub").options(**options).mode("append").save()
names = ("endpoint", "project", "logstore", "accessKeyId", "accessKeySecret")
back = spark.read.format("loghub").options(**{name: options[name] for name in names}).load()
back.explain(extended=True)
with contextlib.suppress(Exception):
    data.write.format("loghub").options(**{**options, "logstore": "not a name"}).mode("append").save()
spark.stop()
