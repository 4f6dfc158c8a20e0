"""A dead letter has its reason, time and attempts, and everything that the event had."""

from producer.agent.events.batch import EventBatch
from producer.agent.events.interfaces import Refusal
from producer.agent.flow.letters import marked, marks_of
from producer.testing import ManualClock


def test_marks_have_the_names_that_a_producers_dead_letters_have() -> None:
    """The reason is one line without escape sequences, whatever the destination answered."""
    error = Refusal(EventBatch.of_lines(b""), "no\nsuch \x1b[31m" + "x" * 5000, attempts=3, request_id="5C5A")
    marks = marks_of(error, "k", ManualClock())
    reason = marks.pop("dead_letter_reason")
    assert (reason[:20], len(reason)) == ("no\\nsuch \\x1b[31mxxx", 2000)
    assert marks == {
        "dead_letter_sink": "k",
        "failed_at": "2023-11-14T22:13:20.000+00:00",
        "attempts": "3",
        "request_id": "5C5A",
    }


def test_an_event_keeps_a_header_that_is_called_like_a_mark() -> None:
    """An event keeps a header with a mark's name, even if it is refused a second time."""
    batch = EventBatch.of_bodies([b"a", b"b"], {"request_id": "the event's"}, {"attempts": ["7", None]})
    once = marked(batch, marks_of(Refusal(batch, "first", request_id="r1"), "k", ManualClock()))
    twice = marked(once, marks_of(Refusal(once, "again", request_id="r2"), "k", ManualClock()))
    for letter, reason, request in ((once, "first", "r1"), (twice, "again", "r2")):
        (headers, _), (other, _) = letter.events()
        assert "attempts" not in other
        assert headers == {
            "attempts": "7",
            "request_id": "the event's",
            "dead_letter_attempts": "1",
            "dead_letter_request_id": request,
            "dead_letter_reason": reason,
            "dead_letter_sink": "k",
            "failed_at": "2023-11-14T22:13:20.000+00:00",
        }
