"""Run ``python -m examples.ship_demo``; an interrupt, even during imports, ends it with one line."""

import sys

from producer.cli.interrupts import Interrupts

interrupts = Interrupts()
with interrupts.raised():
    try:
        from .demo import main

        code = main()
    except KeyboardInterrupt:
        code = interrupts.report("ship_demo")
sys.exit(code)
