"""Write events as objects: files on a disk, in S3 and other stores, or in HDFS; text, JSON or Parquet.

An object holds the events of one delivery for one path; ``path`` may contain headers and times. The sink waits until
there is enough for an object (``roll_size``, ``roll_count``), or until a time has passed (``roll_interval``,
``idle_timeout``). The events stay in the channel until their objects are complete and visible.

An object is stored exactly once. Its name contains the numbers of its batches in the channel, and a plan of it is noted
before it is written. So a retry after a failure or a crash writes the same object under the same name. A store takes an
object as a whole. In a file system it is written under a hidden name and moved; hidden files left by a crash are
removed at the next start.

Parquet files of a path without its times are a table: each has the columns of the former one, and more or wider ones
if its events need them (:mod:`.columns`).
"""

from .sink import ObjectsSink

__all__ = ["ObjectsSink"]
