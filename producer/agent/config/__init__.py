"""Configurations of an agent: our TOML, and Flume's properties."""
