"""``--follow``: the same job as a streaming query, and what remembers how far each file was taken."""
