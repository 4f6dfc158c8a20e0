"""Files that are elsewhere: in an object store, in Hadoop's file system, on a web server.

========================  =========================================================================
``http://``, ``https://``  by ``requests``, which the producer stands on anyway (:mod:`.web`)
all others                by fsspec, and the package that it needs for each (:mod:`.store`)
========================  =========================================================================

A remote file is what its address says and what it was when the job was planned: its size, and whatever its file system
tells that changes with it (an ETag, a time). Whoever reads a range compares that before and after.
"""
