"""``python -m producer``: the command line."""

import sys

from .cli import main

# A worker process that is spawned imports this module, and must not run the command again.
if __name__ == "__main__":
    sys.exit(main())
