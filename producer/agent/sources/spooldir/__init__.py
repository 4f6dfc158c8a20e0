"""Read whole files that are moved into a directory. Modelled on Flume's ``SpoolDirectorySource``.

A file is read when it has not been written for a while. It is completed when all of it is safe in the channels: a
durable channel has stored it, any other channel has delivered it. A completed file is renamed, deleted, or marked in
another directory. After a crash reading continues at the channels' position.

A faulty file does not stop the others. If a file grows while it is read, its new bytes are read, too. If its bytes
change, it is read again from its first byte. A name that was used before gets a number. A lock ensures one source for
each directory.
"""

from .source import SpoolDirectorySource

__all__ = ["SpoolDirectorySource"]
