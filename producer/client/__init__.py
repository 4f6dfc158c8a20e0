"""Send logs: the producer, its streams, and the ways in for Arrow tables, lines and asyncio."""
