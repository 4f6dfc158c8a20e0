"""CredentialsCache: the current credentials of one project, refreshed before they expire and after a refusal.

A provider may block, so it runs on a thread of its own, never in ``send``. While the old credentials are valid, no
attempt waits for new ones. The monotonic clock measures their life, so a step of this machine's time changes nothing.
"""

from __future__ import annotations

import math
import threading

from ....model.credentials import Credentials, StaticCredentials
from ....model.errors import CredentialsError
from ....model.interfaces import CredentialsProvider
from ....runtime.clock import Clock, Deadline, WaitingRoom
from ....runtime.internal_threads import at_work
from ....runtime.locks import Lock
from ....runtime.loggers import get_logger
from .aliyun_package import AliyunClient, credentials_of
from .names import provider_of

_log = get_logger("loghub.credentials")

#: Credentials are refreshed this long before they expire, or in the last quarter of their life if that is shorter,
#: seconds.
REFRESH_BEFORE = 300.0
#: How long an attempt waits for a provider, seconds.
PROVIDER_TIMEOUT = 10.0
#: The pause after a failure of the provider while the old credentials are valid, seconds.
PAUSE_AFTER_FAILURE = 1.0


class CredentialsCache:
    """The credentials of one project.

    :param provider: the provider, or its name.
    :param thread_name: the name of the thread on which the provider runs.
    """

    def __init__(self, provider: CredentialsProvider | AliyunClient | str, clock: Clock, thread_name: str) -> None:
        self._provider = provider_of(provider)
        self._clock = clock
        self._thread_name = thread_name
        self._room = WaitingRoom(clock)
        self._lock = Lock()  # guards everything below
        self._current: Credentials | None = None
        self._refresh_at = self._expires_at = 0.0  # monotonic seconds
        self._refused = False
        self._refreshing = False
        self._failure: CredentialsError | None = None
        self._logged = ""  # the last logged failure; used only by the thread that asks, of which there is one at a time

    def get(self) -> Credentials:
        """Return credentials that are not known to be expired or refused.

        :raises CredentialsError: the provider failed, or did not answer in time.
        """
        if isinstance(self._provider, StaticCredentials):
            return self._provider.credentials
        now = self._clock.monotonic()
        with self._lock:
            usable = self._usable(now)
            start = not self._refreshing and (usable is None or now >= self._refresh_at)
            if start:
                self._refreshing, self._failure = True, None
        if start:
            self._start_refresh()
        return usable or self._wait()

    def _usable(self, now: float) -> Credentials | None:
        return None if self._refused or now >= self._expires_at else self._current

    def _start_refresh(self) -> None:
        try:
            threading.Thread(target=self._refresh, name=self._thread_name, daemon=True).start()
        except RuntimeError:  # the interpreter is shutting down: this thread, never a sender's, asks
            self._refresh()

    def _refresh(self) -> None:
        found: Credentials | None = None
        failure: CredentialsError | None = None
        life = 0.0
        try:
            with at_work():
                found = credentials_of(self._provider.get_credentials())
            life = self._life_of(found)
        except CredentialsError as error:  # a source by name
            failure = error
        except BaseException as error:  # noqa: BLE001  # whatever a user's provider raises
            text = f"get_credentials() raised {type(error).__qualname__}: {error}"
            failure = CredentialsError("CredentialsError", text)
        now = self._clock.monotonic()
        with self._lock:
            self._refreshing, self._failure = False, failure
            if failure is not None or found is None:
                self._refresh_at = now + PAUSE_AFTER_FAILURE
            else:
                self._current, self._refused, self._expires_at = found, False, now + life
                self._refresh_at = self._expires_at - min(REFRESH_BEFORE, life / 4)
            is_missed = self._usable(now) is None
        # an attempt that waits for them reports the failure itself
        if failure is not None and not is_missed and str(failure) != self._logged:
            _log.warning("%s; the earlier credentials are still valid", failure)
        self._logged = str(failure or "")
        self._room.wake_all()

    def _life_of(self, found: object) -> float:
        """Return the remaining life of new credentials, seconds.

        :raises CredentialsError: they are none, or have expired.
        """
        if not isinstance(found, Credentials):
            text = f"get_credentials() returned {type(found).__qualname__}, not Credentials"
            raise CredentialsError("CredentialsError", text)
        life = math.inf if found.expires_at is None else found.expires_at - self._clock.time()
        if life <= 0:
            text = f"get_credentials() returned credentials whose expires_at {found.expires_at} is past"
            raise CredentialsError("CredentialsError", text)
        return life

    def _wait(self) -> Credentials:
        deadline = Deadline.after(self._clock, PROVIDER_TIMEOUT)
        self._room.wait_until(lambda: not self._refreshing, deadline)
        now = self._clock.monotonic()
        with self._lock:
            usable = self._usable(now)
            failure = self._failure
        if usable is None:
            text = f"get_credentials() did not answer with usable credentials within {PROVIDER_TIMEOUT:.0f} s"
            raise failure or CredentialsError("CredentialsError", text)
        return usable

    def refused(self, credentials: Credentials) -> None:
        """Note that the server refused these: the next :meth:`get` waits for others."""
        with self._lock:
            if self._current is credentials:
                self._refused = True
