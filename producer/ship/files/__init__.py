"""Find the files to ship, detect compression, and divide the bytes among tasks."""
