"""Requests and answers on their way: sockets, connections, and one exchange for each request."""
