"""Files that are put into a directory whole, one by one. Source: Flume's ``SpoolDirectorySource``.

A file is taken once it has rested: one that is still written is waited for. When all of it was put, and no channel
could lose it any more (one that forgets has delivered it), the file is completed: renamed, deleted, or marked in a
directory beside. A death before that reads on where the channels are.

What a file cannot be is told, and keeps nothing else up: one that changes while it is read is read on, one whose bytes
are replaced is read anew, a name that was used before gets a number. A directory belongs to one source, which locks it.
"""

from .source import SpoolDirectorySource

__all__ = ["SpoolDirectorySource"]
