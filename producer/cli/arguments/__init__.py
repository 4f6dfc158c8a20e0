"""The arguments of commands whose work takes long to import, or needs an extra: the help needs neither."""
