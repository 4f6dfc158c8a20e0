"""What the operations share: the store, the limits, the clock, and threads for what takes the processor's time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import ParamSpec, TypeVar

from .auth import AccessKey
from .faults import Faults
from .journal import Journal
from .limits import Limits
from .messages import Answer, ApiRequest
from .store.rows import Place
from .store.store import Store

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class Service:
    """One server's parts.

    :ivar store: what it remembers.
    :ivar limits: what it refuses.
    :ivar access_keys: known access keys by id; may change while it runs.
    :ivar faults: what shall go wrong.
    :ivar journal: what was asked.
    :ivar clock_offset: seconds that its clock is ahead of the machine's.
    :ivar workers: decoding and hashing happen here, so that a large request does not hold up small ones.
    """

    store: Store
    limits: Limits
    access_keys: Mapping[str, AccessKey | str]
    faults: Faults
    journal: Journal
    clock_offset: float = 0.0
    workers: ThreadPoolExecutor = field(
        default_factory=lambda: ThreadPoolExecutor(max_workers=4, thread_name_prefix="loghub-server-worker")
    )

    def now(self) -> float:
        """The server's time, Unix seconds."""
        return time.time() + self.clock_offset

    async def offload(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``work`` in a worker thread."""
        return await asyncio.wrap_future(self.workers.submit(work, *args, **kwargs))

    @staticmethod
    async def stored(answer: Future[T]) -> T:
        """Wait for the store."""
        return await asyncio.wrap_future(answer)


Handler = Callable[[Service, ApiRequest, bytes], Awaitable[Answer]]


def place_of(request: ApiRequest) -> Place:
    """The logstore that ``request`` names."""
    return Place(project=request.project, logstore=request.logstore)
