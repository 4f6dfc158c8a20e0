"""The objects that all operations of a server share: store, limits, clock, and thread pools."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Concatenate, ParamSpec, TypeVar

from .activity import Activity
from .auth import AccessKey
from .budget import Budget, Lease
from .faults import Faults
from .journal import Journal
from .limits import Limits
from .messages import Answer, ApiRequest
from .sql_process import SqlProcesses
from .store.rows import Place
from .store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

_DECODERS = 4
#: Raw bytes above which requests are decoded one at a time.
_LARGE_BYTES = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Service:
    """The parts of one server.

    :ivar store: the stored projects, logstores and logs.
    :ivar limits: the limits of requests.
    :ivar access_keys: known access keys by id; may change while the server runs.
    :ivar faults: the installed faults.
    :ivar journal: records of the last requests.
    :ivar activity: totals of all requests.
    :ivar access_log: True to log each request to ``loghub.server.access``.
    :ivar clock_offset: seconds that the server's clock is ahead of the machine's.
    :ivar refused_takes_number: True if a write that is refused for its body uses up its sequence number.
    :ivar user: the user that runs the server, if only this machine can reach it; empty otherwise.
    :ivar region: the region that version 4 signatures must name; None for any.
    :ivar memory: budget of bytes that all requests together may hold.
    :ivar searches: budget of concurrent searches.
    :ivar workers: threads for decoding and hashing, so that a large request does not delay small ones.
    :ivar large_decoder: one thread for large requests. The allocator leaves freed memory to the thread that used it, so
        the peak of decoding is held once and not by each worker.
    :ivar searchers: threads for searches, so that searches do not delay writes.
    :ivar sql: processes that run SQL statements.
    """

    store: Store
    limits: Limits
    access_keys: Mapping[str, AccessKey | str]
    faults: Faults
    journal: Journal
    activity: Activity = field(default_factory=Activity)
    access_log: bool = False
    clock_offset: float = 0.0
    refused_takes_number: bool = False
    region: str | None = None
    user: str = ""
    memory: Budget = field(init=False)
    searches: Budget = field(init=False)
    workers: ThreadPoolExecutor = field(init=False)
    large_decoder: ThreadPoolExecutor = field(init=False)
    searchers: ThreadPoolExecutor = field(init=False)
    sql: SqlProcesses = field(init=False)

    def __post_init__(self) -> None:
        """Create the budgets, threads and processes."""
        limits = self.limits
        self.memory = Budget(
            "memory for requests", limits.held_bytes, waiting=limits.connections, seconds=limits.receive_seconds
        )
        self.searches = Budget(
            "a place for searches", limits.searches, waiting=limits.searches_waiting, seconds=limits.search_seconds
        )
        self.workers = ThreadPoolExecutor(_DECODERS, thread_name_prefix="loghub-server-worker")
        self.large_decoder = ThreadPoolExecutor(1, thread_name_prefix="loghub-server-decoder")
        self.searchers = ThreadPoolExecutor(limits.searches, thread_name_prefix="loghub-server-search")
        self.sql = SqlProcesses(self.limits.sql_bytes)

    def now(self) -> float:
        """Return the server's time, Unix seconds."""
        return time.time() + self.clock_offset

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` in a worker thread."""
        return await asyncio.wrap_future(self.workers.submit(work, *args, **kwargs))

    async def decode(self, raw_size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work``, which decodes ``raw_size`` bytes, in a thread.

        Decoding a hostile body takes up to twenty times its size in memory.
        """
        executor = self.large_decoder if raw_size > _LARGE_BYTES else self.workers
        return await asyncio.wrap_future(executor.submit(work, *args, **kwargs))

    async def search(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work``, a part of a search, in a search thread."""
        return await asyncio.wrap_future(self.searchers.submit(work, *args, **kwargs))

    async def stored(
        self, job: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        """Run a job of the store, and return its answer."""
        return await asyncio.wrap_future(self.store.submit(job, *args, **kwargs))

    def close(self) -> None:
        """Stop the processes and threads, and close the store."""
        self.sql.close()
        self.workers.shutdown()
        self.large_decoder.shutdown()
        self.searchers.shutdown()
        self.sql.wait()
        self.store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that was admitted, as its operation gets it.

    :ivar request: its head.
    :ivar body: its body.
    :ivar lease: its share of the server's memory. The operation enlarges the lease for data that it loads.
    :ivar is_gone: returns True if the client has disconnected.
    """

    request: ApiRequest
    body: bytes
    lease: Lease
    is_gone: Callable[[], bool]

    @property
    def place(self) -> Place:
        """Return the logstore that the request names."""
        return Place(project=self.request.project, logstore=self.request.logstore)


Handler = Callable[[Service, Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An operation of the API.

    :ivar name: its name in LogHub.
    :ivar handler: the function that carries it out.
    :ivar max_body: largest body of such a request, bytes.
    :ivar holds: bytes of memory that the request takes, computed from its head and the declared size of its body; 0 if
        they fit beside the buffers of a connection.
    :ivar needs_project: True if the request must name a project.
    :ivar takes_basic: True if an access key as user and password (Basic) replaces the signature.
    """

    name: str
    handler: Handler
    max_body: Callable[[Limits], int] = lambda limits: limits.json_bytes
    holds: Callable[[ApiRequest, int | None, Limits], int] = lambda _request, _declared, _limits: 0
    needs_project: bool = True
    takes_basic: bool = False
