"""The compared clients: each is a program in its own process, and peers also have their own Python."""
