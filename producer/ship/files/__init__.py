"""Which files are shipped, which of them are compressed, and how their bytes are shared out among tasks."""
