"""A running agent: built from its configuration, supervised, reloaded, stopped."""
