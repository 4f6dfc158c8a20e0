from producer.runtime.backoff import Backoff, pause_after


def test_pauses_double_up_to_the_longest_and_begin_again_after_a_success() -> None:
    """Pauses double up to the longest one, and begin again with the first after a success."""
    backoff = Backoff(0.5, 3.0)
    assert [backoff.next_pause() for _ in range(5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    backoff.reset()
    assert backoff.next_pause() == 0.5


def test_any_number_of_failures_has_a_pause() -> None:
    """After any number of failures the pause is a number within its limit."""
    assert pause_after(10**9, 0.001, 60.0) == 60.0
