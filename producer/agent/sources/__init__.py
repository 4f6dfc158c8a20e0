"""Sources: components that receive or read events."""
