"""The producer works under monkey patching by gevent and eventlet, where no socket descriptor blocks."""

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
import trustme

from producer.server import LogHubServer
from tests.sinks.http.hostile_server import answer, drip_record, serve

from .child import Ended, messages, numbered


@pytest.mark.parametrize(
    ("library", "when"), [("gevent", "first"), ("gevent", "late"), ("eventlet", "first"), ("eventlet", "late")]
)
def test_a_record_is_stored_once_under_monkey_patching(
    library: str, when: str, run: Callable[..., Ended], server: LogHubServer, tmp_path: Path
) -> None:
    """Each record is sent once over HTTP, HTTPS and with a file channel, even while greenlets wait for a segment's key.

    A server that is silent is abandoned at the limit of an attempt.
    """
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with serve(answer, context) as port, serve(drip_record, context) as drips:
        https = [f"https://127.0.0.1:{each}" for each in (port, drips)]
        ended = run("patched.py", library, when, tmp_path / "channel", *https, tmp_path / "ca.pem")
    of_tls = ["tls=5/5", "dripping=0/5"] if when == "first" else []
    said = ["plain=5/5", "channel=5/5", "encrypted=5/5", *of_tls, "silent=0/5"]
    assert ended.stdout.split() == said, ended.stderr
    assert messages(server) == sorted(numbered("plain", 5) + numbered("channel", 5) + numbered("encrypted", 5))
