"""The embedded LogHub as one object, which starts, stops, and shows its data to a test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ..runtime.forks import Stage, watch_fork
from ..runtime.system_user import user_name
from ..text.addresses import is_loopback
from .auth import TEST_ACCESS_KEY, AccessKey, as_key, has_default_key
from .errors import ApiError, ForkedServerError, ServerStartError
from .faults import Faults
from .journal import Journal, RequestRecord
from .limits import Limits
from .service import Service
from .serving.listening import check_exposure, listen
from .serving.runner import Runner
from .store import reading
from .store.log_groups import StoredLog, StoredLogGroup
from .store.rows import EVERYTHING, Place
from .store.sizes import count_of
from .store.store import Store

TEST_ACCESS_KEY_ID, TEST_ACCESS_KEY_SECRET = TEST_ACCESS_KEY


class LogHubServer:
    """A LogHub in a thread of this process, on a port of its own; a context manager.

    ::

        with LogHubServer() as server:
            send_logs_to(ProjectConfig("my-project", **server.connection))
            assert server.count("my-project", "app-log") == 3

    Clients reach it at ``endpoint``, with ``{project}.{host}:{port}`` in the Host header. All methods are thread-safe.
    In a forked child the object is a copy that knows the endpoint only. Closing the copy does nothing; methods that
    need the server raise :class:`ForkedServerError`.
    """

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        data: str | Path | None = None,
        access_keys: Mapping[str, AccessKey | str] | None = None,
        shards: int = 2,
        auto_create: bool = True,
        clock_offset: float = 0.0,
        refused_takes_number: bool = False,
        region: str | None = None,
        limits: Limits | None = None,
        keep_requests: int = 100_000,
        keep_request_bytes: int = 256 * 1024 * 1024,
        access_log: bool = False,
    ) -> None:
        """Open the store; :meth:`start` opens the port.

        :param host: the address to listen on.
        :param port: the port to listen on; 0 for a free one.
        :param data: the directory of the store, created if missing; None to store in memory.
        :param access_keys: secrets (or :class:`AccessKey`) by access key id. By default there is one public key
            (``access_key_id``), and the server accepts this machine only.
        :param shards: default number of shards of a logstore, 1 to 256.
        :param auto_create: True if the first write to a logstore creates it and its project. Reads never do.
        :param clock_offset: seconds that the server's clock is ahead of the machine's.
        :param refused_takes_number: True if a write that is refused for its body uses up its sequence number, and the
            number is checked before the body. The protocol leaves this open, so a client can be tested against both.
        :param region: the region, such as ``cn-hangzhou``, that version 4 signatures must name; None for any.
        :param limits: the limits of requests.
        :param keep_requests: number of the last requests kept in ``requests``.
        :param keep_request_bytes: approximate limit of the memory of these, bytes; ``requests_dropped`` counts the
            dropped ones.
        :param access_log: True to log each request as JSON to ``loghub.server.access``, level INFO.
        :raises ServerStartError: the data directory cannot be used, or other machines can reach ``host`` and the access
            key is the default one.
        :raises ValueError: ``host`` is not text; ``port``, ``shards``, ``keep_requests`` or ``keep_request_bytes`` is
            out of range.
        """
        if not isinstance(host, str):
            raise ValueError(
                f"host is {host!r}: it must be a name or an address; pass a port as LogHubServer(port=9170)"
            )
        if type(port) is not int or not 0 <= port <= 65_535:
            raise ValueError(f"port is {port!r}: it must be an integer from 0 to 65535")
        if not 1 <= shards <= 256:
            raise ValueError(f"shards is {shards}: it must be from 1 to 256")
        if min(keep_requests, keep_request_bytes) < 0:
            raise ValueError(
                f"keep_requests is {keep_requests} and keep_request_bytes {keep_request_bytes}: both must be 0 or more"
            )
        limits = limits or Limits()
        self.host = host
        self._port = port
        keys = {TEST_ACCESS_KEY_ID: TEST_ACCESS_KEY_SECRET} if access_keys is None else access_keys
        self._access_keys: dict[str, AccessKey | str] = dict(keys)
        self._check_exposure()
        self._service = Service(
            store=Store(
                Path(data) if data else None,
                shards=shards,
                auto_create=auto_create,
                sequence_keys=limits.sequence_keys,
            ),
            limits=limits,
            access_keys=self._access_keys,
            faults=Faults(),
            journal=Journal(keep_requests, keep_request_bytes),
            clock_offset=clock_offset,
            refused_takes_number=refused_takes_number,
            region=region,
            access_log=access_log,
        )
        self._runner: Runner | None = None
        self._closed = False
        self._is_copy = False
        watch_fork(self, Stage.LOCKS)

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "of the parent process" if self._is_copy else "listening" if self._runner else "stopped"
        return f"LogHubServer({self.host}:{self._port}, {state})"

    def start(self) -> Self:
        """Listen; on return connections are accepted. After :meth:`stop` it reuses the port and still has its data.

        :raises ServerStartError: the port is taken, the server listens already or is closed, or other machines can
            reach ``host`` and the access key is the default one.
        :raises ForkedServerError: this is a copy in a forked child.
        """
        service = self._own_service()
        if self._runner is not None:
            raise ServerStartError(f"the server already listens on {self.endpoint}")
        if self._closed:
            raise ServerStartError("the server is closed and its data released: make a new LogHubServer")
        self._check_exposure()
        listener = listen(self.host, self._port)
        address, self._port, *_ = listener.getsockname()
        service.user = user_name() if is_loopback(address) else ""
        self._runner = Runner(service, listener)
        return self

    def stop(self, grace: float = 0.2) -> None:
        """Stop listening and cut all connections; the data stays. Does nothing when stopped.

        :param grace: seconds that requests in progress may take to end.
        """
        if self._is_copy:
            return
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop(grace)

    def close(self) -> None:
        """Stop, and drop the data unless it is in a directory. Calling it again does nothing."""
        if self._is_copy:
            return
        self._closed = True
        self.stop()
        self._service.close()

    def _renew_in_child(self) -> None:
        """Become a copy: threads, sockets and data are the parent's."""
        self._is_copy = True
        self._service.sql.forget()

    def _own_service(self) -> Service:
        """Return the parts of the server.

        :raises ForkedServerError: this is a copy in a forked child.
        """
        if self._is_copy:
            raise ForkedServerError
        return self._service

    def _check_exposure(self) -> None:
        if has_default_key(self._access_keys):
            check_exposure(self.host)

    @property
    def port(self) -> int:
        """Return the port to listen on; 0 for a free one that the first start chooses."""
        return self._port

    @property
    def endpoint(self) -> str:
        """Return the URL of the server, such as ``http://127.0.0.1:41234``.

        :raises ServerStartError: the server has no port yet.
        """
        if not self._port:
            raise ServerStartError("the server has no port before it is started: call start(), or use `with`")
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self._port}"

    url = endpoint

    @property
    def access_key_id(self) -> str:
        """Return the id of the first access key."""
        return next(iter(self._access_keys))

    @property
    def access_key_secret(self) -> str:
        """Return the secret of the first access key."""
        return as_key(self._access_keys[self.access_key_id]).secret

    @property
    def connection(self) -> dict[str, str]:
        """Return endpoint and first access key as options: ``ProjectConfig("app", **server.connection)``.

        The security token is included if the key has one.
        """
        key = as_key(self._access_keys[self.access_key_id])
        options = {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key_id,
            "access_key_secret": key.secret,
        }
        return options if key.security_token is None else options | {"security_token": key.security_token}

    @property
    def access_keys(self) -> dict[str, AccessKey | str]:
        """Return the access keys; change the dict to rotate, disable or revoke keys while the server runs."""
        return self._access_keys

    @property
    def faults(self) -> Faults:
        """Return the faults of the server (:mod:`producer.server.faults`), to install and remove them."""
        return self._own_service().faults

    @property
    def clock_offset(self) -> float:
        """Return the seconds that the server's clock is ahead of the machine's; may be set while it runs."""
        return self._service.clock_offset

    @clock_offset.setter
    def clock_offset(self, seconds: float) -> None:
        self._own_service().clock_offset = seconds

    @property
    def requests(self) -> list[RequestRecord]:
        """Return the last requests, in the order in which they ended."""
        return self._own_service().journal.records()

    @property
    def requests_dropped(self) -> int:
        """Return the number of requests dropped from ``requests`` for lack of room."""
        return self._own_service().journal.dropped

    def clear_requests(self) -> None:
        """Forget the requests so far."""
        self._own_service().journal.clear()

    def count(self, project: str, logstore: str) -> int:
        """Return the number of logs in a logstore; 0 if it does not exist."""
        try:
            service = self._own_service()
            return service.store.submit(count_of, _place(project, logstore), service.now()).result()
        except ApiError:
            return 0

    def log_groups(self, project: str, logstore: str) -> list[StoredLogGroup]:
        """Return the LogGroups of a logstore in order of arrival; an empty list if it does not exist."""
        return list(self.iter_log_groups(project, logstore))

    def iter_log_groups(self, project: str, logstore: str) -> Iterator[StoredLogGroup]:
        """Yield the LogGroups that a logstore holds at this moment, without loading all of them into memory."""
        place, submit, now = _place(project, logstore), self._service.store.submit, self._service.now()
        try:
            until = submit(reading.last_row, place).result()
        except ApiError:
            return
        after: int | None = 0
        while after is not None:
            page = submit(reading.search, place, EVERYTHING, after, until, now).result()
            yield from (group.unpack() for group in page.groups)
            after = page.after

    def logs(self, project: str, logstore: str) -> list[StoredLog]:
        """Return the logs of a logstore, by LogGroup in order of arrival; an empty list if it does not exist."""
        return [log for group in self.iter_log_groups(project, logstore) for log in group.iter_logs()]


def _place(project: str, logstore: str) -> Place:
    """Return the logstore that clients write to under these names."""
    return Place(project=project.lower(), logstore=logstore)
