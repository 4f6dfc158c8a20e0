"""Event batches, their format in a channel, and the interfaces of components."""
