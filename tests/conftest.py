"""What all tests share: the profile of Hypothesis, and a Ctrl-C that works."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

# The same examples in every run, so that a failure in CI is a failure here; the clock of a busy machine is no failure.
settings.register_profile(
    "repeatable",
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=100,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")

# A shell's background job ignores SIGINT, and so would every program that the tests start and interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
