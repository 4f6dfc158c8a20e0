"""Events of the agent: batches, their bytes in a channel, and the interfaces of components."""
