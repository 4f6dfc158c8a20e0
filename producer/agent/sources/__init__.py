"""Sources: where events come from."""
