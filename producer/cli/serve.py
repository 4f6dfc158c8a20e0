"""The command ``producer serve``: run the embedded LogHub as a process of its own."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from ..runtime import signals
from ..runtime.system_user import user_name
from .exit_codes import ExitCode
from .local_key import LocalKeyError, local_key
from .output import say, tell_error
from .parsing import set_examples, whole_number
from .profiles import config_path

if TYPE_CHECKING:
    import logging

    from ..server.loghub_server import LogHubServer

DEFAULT_PORT = 9170
#: The limit of requests kept for the console, so that memory stays bounded.
_KEEP_REQUESTS = 1000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer serve``."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    parser.add_argument(
        "--port", type=whole_number, default=DEFAULT_PORT, help="port, 0 for a free one (default: %(default)s)"
    )
    parser.add_argument("--data", metavar="DIR", help="directory for stored logs (default: memory)")
    parser.add_argument(
        "--access-key-id",
        metavar="ID",
        help="the access key id of clients (default: this user's own key, that of --profile local)",
    )
    parser.add_argument(
        "--access-key-secret",
        metavar="SECRET",
        default=os.environ.get("LOGHUB_SERVER_ACCESS_KEY_SECRET"),
        help="its secret (default: the environment's LOGHUB_SERVER_ACCESS_KEY_SECRET, which other users cannot see)",
    )
    parser.add_argument(
        "--shards", type=whole_number, default=2, help="shards of a new logstore (default: %(default)s)"
    )
    parser.add_argument("--region", help="refuse signatures of version 4 for another region (default: take any)")
    parser.add_argument("--strict", action="store_true", help="refuse writes to logstores that were not created before")
    parser.add_argument(
        "--access-log",
        metavar="FILE",
        help="append a line of JSON for each request to FILE; - for the standard error (default: none)",
    )
    parser.add_argument(
        "--env",
        action="store_true",
        help="print the endpoint and this user's own key as variables for a shell, and end",
    )
    set_examples(
        parser,
        "producer serve",
        'eval "$(producer serve --env)"',
        "producer serve --port 9170 --data /tmp/loghub",
        "LOGHUB_SERVER_ACCESS_KEY_SECRET=… producer serve --host 0.0.0.0 --access-key-id me",
    )


def run(args: argparse.Namespace) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code."""
    problem = _problem(args)
    if problem is not None:
        return _fail(problem)
    if args.env:
        return _print_environment(args)
    try:
        from ..server import LogHubServer, ServerStartError  # the extra may be missing
    except ImportError as error:
        return _fail(str(error))
    try:
        access_log = None if args.access_log is None else _open_access_log(args.access_log)
    except OSError as error:
        return _fail(f"--access-log {args.access_log} cannot be written: {error}")
    try:
        ended = threading.Event()
        stopping = signals.on_stop_signal(lambda _: ended.set())
        with _access_log(access_log), stopping, _make(LogHubServer, args) as server:
            _announce(server, args)
            signals.wait(ended)
            server.stop(grace=2.0)
    except (ServerStartError, LocalKeyError) as error:
        return _fail(str(error))
    return ExitCode.OK


def _print_environment(args: argparse.Namespace) -> int:
    try:
        key = _local_key()
    except LocalKeyError as error:
        return _fail(str(error))
    values = {"endpoint": f"http://127.0.0.1:{args.port}", **key}
    print("export", *(f"LOGHUB_{name.upper()}={shlex.quote(value)}" for name, value in values.items()))
    return ExitCode.OK


def _local_key() -> dict[str, str]:
    path = config_path(os.environ)
    return local_key(path and path.parent)


def _problem(args: argparse.Namespace) -> str | None:
    """Return the first error of the options, or None."""
    if not 0 <= args.port <= 65535:
        return f"--port is {args.port}: it must be from 0 to 65535"
    if not 1 <= args.shards <= 256:
        return f"--shards is {args.shards}: it must be from 1 to 256"
    if bool(args.access_key_id) != bool(args.access_key_secret):
        return "--access-key-id and --access-key-secret belong together: give both, or neither"
    return None


def _make(server_class: type[LogHubServer], args: argparse.Namespace) -> LogHubServer:
    if args.access_key_id:
        keys = {args.access_key_id: args.access_key_secret}
    else:
        from ..server.serving.listening import check_exposure

        check_exposure(args.host)
        key = _local_key()
        keys = {key["access_key_id"]: key["access_key_secret"]}
    return server_class(
        args.host,
        args.port,
        data=args.data,
        access_keys=keys,
        shards=args.shards,
        auto_create=not args.strict,
        region=args.region,
        keep_requests=_KEEP_REQUESTS,
        access_log=args.access_log is not None,
    )


def _announce(server: LogHubServer, args: argparse.Namespace) -> None:
    is_local = not args.access_key_id
    signs = "--profile local" if is_local and server.port == DEFAULT_PORT else f"access key id {server.access_key_id}"
    kept = f"in {args.data}" if args.data else "in memory, gone at the end"
    # Show the key only on a terminal, not in a file or a journal.
    key = {"key": server.access_key_id, "secret": server.access_key_secret}
    opened = f"#{urlencode(key)}" if is_local and sys.stdout.isatty() else ""
    say(
        f"LogHub of user {user_name()} listens on {server.endpoint} ({signs}); data {kept};"
        f" console {server.endpoint}/console{opened}; end it with Ctrl-C",
        flush=True,
    )


def _open_access_log(path: str) -> logging.Handler:
    import logging  # the help does not need it

    from .log_lines import LogLines

    handler = logging.StreamHandler() if path == "-" else logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(LogLines())
    return handler


@contextmanager
def _access_log(handler: logging.Handler | None) -> Iterator[None]:
    """Write the access log to a handler inside the block."""
    if handler is None:
        yield
        return
    import logging

    logger = logging.getLogger("loghub.server.access")
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.removeHandler(handler)
        handler.close()


def _fail(message: str) -> int:
    tell_error("serve", message)
    return ExitCode.USAGE  # nothing was started
