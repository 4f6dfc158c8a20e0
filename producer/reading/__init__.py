"""What reads from LogHub stands on this: signed questions, a logstore shard by shard, consumer groups.

Spark's reader, the agent's source and the command line each make of the bytes what they need.
"""
