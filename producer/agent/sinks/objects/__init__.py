"""Writes events as objects: files on a disk, in S3 and other stores, in Hadoop's file system; text, JSON or Parquet.

An object is what was taken from the channel at once, of one place (``path`` may name headers and times). The sink waits
until there is enough for one (``roll_size``, ``roll_count``), or it was long enough (``roll_interval``,
``idle_timeout``); the events stay in the channel until their objects are whole and visible.

An object is stored once. Its name is made of the numbers that its batches have in the channel, and what is to be
written is noted before it is: what is tried again after a failure or a death is the same object, with the same name. A
store takes an object as a whole; in a file system it is written under a hidden name and moved, and what a death left
under one is removed at the next start.
"""

from .sink import ObjectsSink

__all__ = ["ObjectsSink"]
