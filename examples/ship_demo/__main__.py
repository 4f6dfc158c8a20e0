"""``python -m examples.ship_demo``: an interrupt ends it with one line, also while it is still being imported."""

import sys

from producer.cli.interrupts import Interrupts

interrupts = Interrupts()
with interrupts.raised():
    try:
        from .demo import main

        code = main()
    except KeyboardInterrupt:
        code = interrupts.tell("ship_demo")
sys.exit(code)
