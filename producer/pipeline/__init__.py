"""From records to acknowledged batches, in memory: ``admission`` is the entry, ``pipeline`` has all stages."""
