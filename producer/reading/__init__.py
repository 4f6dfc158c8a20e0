"""Reads from LogHub: signed requests, a logstore shard by shard, searches, and consumer groups.

Spark's reader, the agent's source and the command line each decode the bytes themselves.
"""
