"""From sealed batches to their outcome: fair queue, gates, IO threads, attempts, retries, splits and sequence
numbers.
"""
