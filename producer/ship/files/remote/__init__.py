"""Remote files: in an object store, in Hadoop's file system, on a web server.

========================  =========================================================================
``http://``, ``https://``  by ``requests``, a dependency of the producer (:mod:`.web`)
all others                by fsspec and the package that it needs for each scheme (:mod:`.store`)
========================  =========================================================================

A remote file is identified by its address, its size, and a version of its file system, such as an ETag or a time. The
reader of a range compares these before and after reading.
"""
