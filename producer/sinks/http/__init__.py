"""HTTP for sinks: connections, what of a request has left, limits."""
