"""What the operations share: the store, the limits, the clock, and threads for what takes the processor's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

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
#: Raw bytes beyond which a request is decoded alone.
_LARGE_BYTES = 1024 * 1024


@dataclass(slots=True, kw_only=True)
class Service:
    """One server's parts.

    :ivar store: what it remembers.
    :ivar limits: what it refuses.
    :ivar access_keys: known access keys by id; may change while it runs.
    :ivar faults: what shall go wrong.
    :ivar journal: what was asked.
    :ivar activity: what was done, in sums.
    :ivar access_log: whether each request is a line of the logger ``loghub.server.access``.
    :ivar clock_offset: seconds that its clock is ahead of the machine's.
    :ivar refused_takes_number: whether a write that is refused for its body uses up its sequence number.
    :ivar user: the user that it runs as, where only this machine reaches it; empty otherwise.
    :ivar region: what signatures of version 4 must be for; None for any.
    :ivar memory: bytes that all requests together may hold.
    :ivar searches: searches that may run at once.
    :ivar workers: decoding and hashing happen here, so that a large request does not hold up small ones.
    :ivar large_decoder: large requests are decoded here, one after the other: what decoding takes at most is taken
        once, and not again by each thread, to which the allocator leaves what it had.
    :ivar searchers: searches happen here, so that they do not hold up writes.
    :ivar sql: processes in which SQL statements run.
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
        """Make what is shared out among the requests."""
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
        """The server's time, Unix seconds."""
        return time.time() + self.clock_offset

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` in a worker thread."""
        return await asyncio.wrap_future(self.workers.submit(work, *args, **kwargs))

    async def decode(self, raw_size: int, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work``, which decodes ``raw_size`` bytes, in a thread.

        A body that was made to takes twenty times its size while it is decoded.
        """
        executor = self.large_decoder if raw_size > _LARGE_BYTES else self.workers
        return await asyncio.wrap_future(executor.submit(work, *args, **kwargs))

    async def search(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work``, a part of a search, in a thread for searches."""
        return await asyncio.wrap_future(self.searchers.submit(work, *args, **kwargs))

    @staticmethod
    async def stored(answer: Future[T]) -> T:
        """Wait for the store."""
        return await asyncio.wrap_future(answer)

    def close(self) -> None:
        """End processes and threads, and close the store."""
        self.sql.close()
        self.workers.shutdown()
        self.large_decoder.shutdown()
        self.searchers.shutdown()
        self.sql.wait()
        self.store.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request that was let in, as its operation gets it.

    :ivar request: its head.
    :ivar body: its body.
    :ivar lease: what it holds of the server's memory; what its operation reads for it belongs in there.
    :ivar is_gone: tells whether nobody waits for the answer any more.
    """

    request: ApiRequest
    body: bytes
    lease: Lease
    is_gone: Callable[[], bool]

    @property
    def place(self) -> Place:
        """The logstore that the request names."""
        return Place(project=self.request.project, logstore=self.request.logstore)


Handler = Callable[[Service, Call], Awaitable[Answer]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing that can be asked.

    :ivar name: as LogHub calls it.
    :ivar handler: carries it out.
    :ivar max_body: bytes that the body of such a request may have.
    :ivar holds: bytes of memory that carrying out this request takes, from its head and the declared size of its body;
        what fits beside the buffers of a connection is 0.
    :ivar needs_project: whether the request must name a project.
    :ivar takes_basic: whether an access key as user and password (Basic) will do in place of a signature.
    """

    name: str
    handler: Handler
    max_body: Callable[[Limits], int] = lambda limits: limits.json_bytes
    holds: Callable[[ApiRequest, int | None, Limits], int] = lambda _request, _declared, _limits: 0
    needs_project: bool = True
    takes_basic: bool = False
