"""The embedded LogHub as one object: starts, stops, and lets a test look inside."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from ..runtime.forks import Stage, watch_fork
from ..runtime.system_user import user_name
from ..text.addresses import is_loopback
from .auth import TEST_ACCESS_KEY, AccessKey, has_default_key
from .errors import ApiError, ForkedServerError, ServerStartError
from .faults import Faults
from .journal import Journal, RequestRecord
from .limits import Limits
from .service import Service
from .serving.listening import check_exposure, listen
from .serving.runner import Runner
from .store.log_groups import StoredLog, StoredLogGroup
from .store.rows import EVERYTHING, Place
from .store.store import Store

TEST_ACCESS_KEY_ID, TEST_ACCESS_KEY_SECRET = TEST_ACCESS_KEY


class LogHubServer:
    """A LogHub in a thread of this process, on a port of its own; a context manager.

    ::

        with LogHubServer() as server:
            send_logs_to(ProjectConfig("my-project", **server.connection))
            assert server.count("my-project", "app-log") == 3

    It is reached under ``{project}.{host}:{port}`` in the Host header at ``endpoint``. All methods may be called from
    any thread. A forked child has a copy that only tells how the server is reached: closing it does nothing, and
    whatever needs the server itself raises :class:`ForkedServerError`.
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
        :param data: a directory for what is stored, made if it is missing; None for memory.
        :param access_keys: secrets (or :class:`AccessKey`) by access key id; by default one key, see ``access_key_id``,
            that everybody knows, and that is good on this machine only.
        :param shards: shards of a logstore whose creator does not say, 1 to 256.
        :param auto_create: whether the first write to a logstore creates it and its project; a look never does.
        :param clock_offset: seconds that the server's clock is ahead of the machine's.
        :param refused_takes_number: whether a write that is refused for its body uses up its sequence number all the
            same, and the number is looked at before the body. The protocol does not say; a client that trusts in one
            answer can be tried against the other.
        :param region: such as ``cn-hangzhou``: signatures of version 4 for another one are refused; None takes any.
        :param limits: what is too much.
        :param keep_requests: how many of the last requests ``requests`` knows.
        :param keep_request_bytes: how many bytes of memory these may take, about; see ``requests_dropped``.
        :param access_log: whether each request is a line of JSON in the logger ``loghub.server.access``, level INFO.
        :raises ServerStartError: the data directory cannot be used, or ``host`` can be reached from other machines and
            the access key is the default one.
        :raises ValueError: ``host`` is no text; ``port``, ``shards``, ``keep_requests`` or ``keep_request_bytes`` is
            out of range.
        """
        if not isinstance(host, str):
            raise ValueError(
                f"host is {host!r}: it must be a name or an address; a port is given by name: LogHubServer(port=9170)"
            )
        if type(port) is not int or not 0 <= port <= 65_535:
            raise ValueError(f"port is {port!r}: it must be an integer from 0 to 65535")
        if not 1 <= shards <= 256:
            raise ValueError(f"shards is {shards}: it must be from 1 to 256")
        if min(keep_requests, keep_request_bytes) < 0:
            raise ValueError(
                f"keep_requests is {keep_requests} and keep_request_bytes {keep_request_bytes}: neither can be negative"
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
        """Listen; on return connections are accepted. After :meth:`stop` it takes the same port and still has its data.

        :raises ServerStartError: the port is taken, the server is listening or closed already, or what the constructor
            says of the access keys.
        :raises ForkedServerError: this is a copy in a forked child.
        """
        service = self._own_service()
        if self._runner is not None:
            raise ServerStartError(f"the server listens on {self.endpoint} already")
        if self._closed:
            raise ServerStartError("the server is closed, and its data with it: make another one")
        self._check_exposure()
        listener = listen(self.host, self._port)
        address, self._port, *_ = listener.getsockname()
        service.user = user_name() if is_loopback(address) else ""
        self._runner = Runner(service, listener)
        return self

    def stop(self, grace: float = 0.2) -> None:
        """Stop listening and cut all connections; the data stays. Does nothing when stopped.

        :param grace: seconds for requests being answered to end.
        """
        if self._is_copy:
            return
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop(grace)

    def close(self) -> None:
        """Stop, and forget the data unless it is in a directory. Calling it again does nothing."""
        if self._is_copy:
            return
        self._closed = True
        self.stop()
        self._service.close()

    def _renew_in_child(self) -> None:
        """From now on be a copy: threads, sockets and data are the parent's."""
        self._is_copy = True
        self._service.sql.forget()

    def _own_service(self) -> Service:
        """What only the process that made the server has.

        :raises ForkedServerError: this is a forked child of it.
        """
        if self._is_copy:
            raise ForkedServerError
        return self._service

    def _check_exposure(self) -> None:
        if has_default_key(self._access_keys):
            check_exposure(self.host)

    @property
    def port(self) -> int:
        """The port that it listens on; 0 before the first start, when it is to choose one."""
        return self._port

    @property
    def endpoint(self) -> str:
        """Where clients find it, such as ``http://127.0.0.1:41234``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self._port}"

    url = endpoint

    @property
    def access_key_id(self) -> str:
        """The id of the first access key."""
        return next(iter(self._access_keys))

    @property
    def access_key_secret(self) -> str:
        """The secret of the first access key."""
        key = self._access_keys[self.access_key_id]
        return key if isinstance(key, str) else key.secret

    @property
    def connection(self) -> dict[str, str]:
        """Endpoint and first access key, by the names of their options: ``ProjectConfig("app", **server.connection)``.

        The token is in it if the key has one.
        """
        key = self._access_keys[self.access_key_id]
        token = None if isinstance(key, str) else key.security_token
        options = {
            "endpoint": self.endpoint,
            "access_key_id": self.access_key_id,
            "access_key_secret": self.access_key_secret,
        }
        return options if token is None else options | {"security_token": token}

    @property
    def access_keys(self) -> dict[str, AccessKey | str]:
        """The access keys that it knows; change it to rotate, disable or revoke keys while it runs."""
        return self._access_keys

    @property
    def faults(self) -> Faults:
        """What shall go wrong; see :mod:`producer.server.faults`."""
        return self._own_service().faults

    @property
    def clock_offset(self) -> float:
        """Seconds that the server's clock is ahead of the machine's; may be set while it runs."""
        return self._service.clock_offset

    @clock_offset.setter
    def clock_offset(self, seconds: float) -> None:
        self._own_service().clock_offset = seconds

    @property
    def requests(self) -> list[RequestRecord]:
        """What was asked so far, in the order in which the requests ended; of very many the last ones."""
        return self._own_service().journal.records()

    @property
    def requests_dropped(self) -> int:
        """How many requests there was no room for in ``requests`` any more; 0 when it knows all."""
        return self._own_service().journal.dropped

    def clear_requests(self) -> None:
        """Forget what was asked so far."""
        self._own_service().journal.clear()

    def count(self, project: str, logstore: str) -> int:
        """How many logs a logstore holds; 0 when it does not exist."""
        try:
            service = self._own_service()
            return service.store.count(_place(project, logstore), service.now()).result()
        except ApiError:
            return 0

    def log_groups(self, project: str, logstore: str) -> list[StoredLogGroup]:
        """The LogGroups that a logstore holds, in order of arrival; none when it does not exist."""
        return list(self.iter_log_groups(project, logstore))

    def iter_log_groups(self, project: str, logstore: str) -> Iterator[StoredLogGroup]:
        """The LogGroups that a logstore holds now, one by one: more of them than fit into memory can be looked at."""
        place, store, now = _place(project, logstore), self._service.store, self._service.now()
        try:
            until = store.last_row(place).result()
        except ApiError:
            return
        after: int | None = 0
        while after is not None:
            page = store.search(place, EVERYTHING, after, until, now).result()
            yield from (group.unpack() for group in page.groups)
            after = page.after

    def logs(self, project: str, logstore: str) -> list[StoredLog]:
        """The logs that a logstore holds: LogGroups in order of arrival, in each the order sent; none when it does not
        exist.
        """
        return [log for group in self.iter_log_groups(project, logstore) for log in group.iter_logs()]


def _place(project: str, logstore: str) -> Place:
    """Where clients that name them so write to."""
    return Place(project=project.lower(), logstore=logstore)
