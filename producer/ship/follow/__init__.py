"""Follow files with ``--follow``: find new lines, ship them, and keep their offsets in a checkpoint."""
