"""Texts and events of the monitoring are shown without secrets."""

from __future__ import annotations

from producer.agent.flow.taps import MOST_BODY, Seen
from producer.agent.monitoring.recent_log import RecentLog
from producer.agent.monitoring.redaction import redacted, redacted_copy, redacted_event
from producer.runtime.loggers import get_logger


def test_values_of_the_configuration_and_users_in_urls_are_hidden() -> None:
    """Values from the environment, and users and passwords in URLs, are hidden as in logs."""
    assert redacted("x s3cr3t https://me:pw@host/", {"s3cr3t": "${env:K}"}) == "x ${env:K} https://***@host/"


def test_the_beginning_of_a_cut_secret_is_not_shown() -> None:
    """A secret that is cut at the end of a copy is not shown, although hidden secrets before it shortened the text."""
    long, cut = "L" * 6000, "a-secret-of-many-words"
    body = f"{long} {long} {cut}"[: MOST_BODY - 5].encode()
    body += cut[: MOST_BODY - len(body)].encode()
    shown = redacted_event(Seen({}, body, MOST_BODY + 9), {long: "***", cut: "***"})["body"]
    assert cut[:2] not in shown
    page, secret = RecentLog(lambda: {long: "***"}), "password=hunter2"
    try:
        get_logger("loghub.agent").error("%s %s %s %s", "a" * 300, long, secret, "b" * 900)
        assert page.lines()[0]["text"].rstrip("b") == f"{'a' * 300} *** password=*** "
    finally:
        page.close()
    assert redacted_copy("short", {}, 100, is_cut=False) == "short"
    assert redacted_copy("x" * 200, {}, 100, is_cut=True) == "x" * 100
