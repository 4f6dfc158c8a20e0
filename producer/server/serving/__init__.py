"""HTTP of the server: sockets, connections, and one exchange for each request."""
