"""Read whole files that are moved into a directory. Modelled on Flume's ``SpoolDirectorySource``.

A file is read once it was not written for a while. It is completed when all of it is safe in the channels: a durable
channel has stored it, any other channel has delivered it. A completed file is renamed, deleted, or marked in another
directory. After a crash reading continues at the channels' position.

A faulty file does not stop the others. A file that grows while it is read is read on, and one whose bytes change is
read again from its first byte. A name that was used before gets a number. A lock ensures one source for each directory.
"""

from .source import SpoolDirectorySource

__all__ = ["SpoolDirectorySource"]
