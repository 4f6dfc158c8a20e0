"""The load that a fleet puts on its second endpoint after leaving the first one in the same second."""

import pytest

from tests.sinks.loghub.fleet import Fleet

PRODUCERS = 1000
#: Requests in a second while nothing fails.
USUAL = PRODUCERS // 2


@pytest.mark.parametrize("frozen", [False, True], ids=["refuses", "frozen"])
def test_a_fleet_that_fails_over_in_one_second_does_not_overrun_the_second_endpoint(*, frozen: bool) -> None:
    """An endpoint that can work on three times the usual requests takes the fleet over, and few return at a time."""
    found = Fleet(PRODUCERS, 3.0, frozen=frozen).run()
    assert found.requests < 4.5 * USUAL
    assert found.connections < 0.6 * PRODUCERS
    assert found.refused < 0.1
    assert found.caught_up < 30
    assert found.probes < 0.3 * PRODUCERS
    assert found.returns < 0.06 * PRODUCERS
    assert found.returned < 200
    assert found.changes == 2
