"""The clients that are compared: a program each, in a process of its own; peers with a Python of their own, too."""
