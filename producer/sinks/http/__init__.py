"""HTTP for sinks: connections, limits of attempts, and the bytes of a request that were sent."""
