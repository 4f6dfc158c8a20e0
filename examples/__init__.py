"""Hold programs that show how the package is used; ``README.md`` describes them."""
