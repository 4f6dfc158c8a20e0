"""Programs that show how the package is used; see ``README.md``."""
