"""Build an agent from its configuration, supervise, reload and stop it."""
