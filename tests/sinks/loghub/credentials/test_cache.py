"""Credentials are refreshed before they expire and after a refusal, never on a caller's thread."""

import threading
from collections.abc import Callable

import pytest

from producer import Credentials, CredentialsError, StaticCredentials
from producer.sinks.loghub.credentials.cache import CredentialsCache
from producer.testing import ManualClock
from tests.support.threads import named


class Provider:
    """Returns numbered credentials, each valid for ``life`` seconds; ``before`` runs first in each call."""

    def __init__(self, clock: ManualClock, life: float | None = 100.0, before: Callable[[int], None] | None = None):
        self.clock, self.life, self.before = clock, life, before
        self.calls = 0
        self.threads: list[str] = []

    def get_credentials(self) -> Credentials:
        self.calls += 1
        self.threads.append(threading.current_thread().name)
        if self.before is not None:
            self.before(self.calls)
        expires = None if self.life is None else self.clock.time() + self.life
        return Credentials(access_key_id=f"id-{self.calls}", access_key_secret="secret", expires_at=expires)


def wait_for_calls(provider: Provider, cache: CredentialsCache, calls: int, key: str) -> None:
    """Wait until the refresh in the background is complete."""
    done = threading.Event()
    for _ in range(2000):
        if cache.get().access_key_id == key and provider.calls == calls:
            return
        done.wait(0.005)
    pytest.fail(f"{provider.calls} calls, {cache.get().access_key_id}")


def test_static_credentials_cost_no_thread() -> None:
    """Static credentials need no thread."""
    static = StaticCredentials(credentials=Credentials(access_key_id="a", access_key_secret="s"))
    cache = CredentialsCache(static, ManualClock(), "static")
    cache.refused(cache.get())
    assert cache.get().access_key_id == "a"
    assert not named("static")


def test_many_attempts_share_one_call_which_runs_on_the_named_thread() -> None:
    """Many attempts share one call, which runs on the named thread."""
    clock = ManualClock()
    provider = Provider(clock)
    cache = CredentialsCache(provider, clock, "p-credentials-x")
    assert {cache.get().access_key_id for _ in range(10)} == {"id-1"}
    assert provider.threads == ["p-credentials-x"]


def test_a_refresh_starts_in_the_last_quarter_of_a_short_life() -> None:
    """A refresh starts in the last quarter of a short life; attempts use the old credentials and do not wait."""
    clock = ManualClock()
    hold = threading.Event()
    provider = Provider(clock, before=lambda call: hold.wait(60) and None if call == 2 else None)
    cache = CredentialsCache(provider, clock, "t")
    cache.get()
    clock.advance(74)
    assert cache.get().access_key_id == "id-1"
    assert provider.calls == 1
    clock.advance(2)
    assert cache.get().access_key_id == "id-1"  # the provider hangs in its second call, and the attempt does not wait
    hold.set()
    wait_for_calls(provider, cache, 2, "id-2")


def test_long_lived_credentials_are_refreshed_five_minutes_before_the_end() -> None:
    """Credentials with a life of an hour are refreshed 300 s before its end."""
    clock = ManualClock()
    provider = Provider(clock, life=3600)
    cache = CredentialsCache(provider, clock, "t")
    cache.get()
    clock.advance(3299)
    cache.get()
    assert provider.calls == 1
    clock.advance(2)
    wait_for_calls(provider, cache, 2, "id-2")


def test_expired_credentials_are_never_used() -> None:
    """An attempt waits for new credentials once the old ones have expired."""
    clock = ManualClock()
    provider = Provider(clock)
    cache = CredentialsCache(provider, clock, "t")
    cache.get()
    clock.advance(101)
    assert cache.get().access_key_id == "id-2"


def test_refused_credentials_are_replaced_before_the_next_attempt() -> None:
    """After a 401 the next attempt waits for others, once for all attempts that were refused together."""
    clock = ManualClock()
    provider = Provider(clock, life=None)
    cache = CredentialsCache(provider, clock, "t")
    old = cache.get()
    cache.refused(old)
    cache.refused(old)
    assert cache.get().access_key_id == "id-2"
    cache.refused(old)  # a late response: these are no longer the current ones
    assert cache.get().access_key_id == "id-2"
    assert provider.calls == 2


def test_a_provider_that_raises_fails_the_attempt_with_its_words() -> None:
    """The error names the exception; the next attempt asks again."""
    clock = ManualClock()

    def fail_first(call: int) -> None:
        if call == 1:
            raise RuntimeError("vault is sealed")

    provider = Provider(clock, before=fail_first)
    cache = CredentialsCache(provider, clock, "t")
    with pytest.raises(CredentialsError, match="RuntimeError: vault is sealed"):
        cache.get()
    assert cache.get().access_key_id == "id-2"


def test_the_attempt_raises_the_failure_which_is_logged_with_the_project(caplog: pytest.LogCaptureFixture) -> None:
    """The attempt raises the failure, which is logged with the project: a second line would repeat it."""
    clock = ManualClock()

    def fail(call: int) -> None:
        raise OSError("no key")

    cache = CredentialsCache(Provider(clock, before=fail), clock, "t")
    with pytest.raises(CredentialsError, match="no key"):
        cache.get()
    assert not caplog.records


def test_a_failure_that_stays_the_same_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    """A repeated failure of a background refresh is logged once; a different one, or one after a success, is logged
    again.
    """
    clock = ManualClock()
    words = ["", "no network", "no network", "no key", "", "no key"]

    def fail(call: int) -> None:
        if words[call - 1]:
            raise OSError(words[call - 1])

    cache = CredentialsCache(Provider(clock, before=fail), clock, "refreshes")
    for _ in words:
        cache.get()
        for thread in [each for each in threading.enumerate() if each.name == "refreshes"]:
            thread.join(60)
        clock.advance(80 if words[cache._provider.calls - 1] == "" else 2)  # type: ignore[attr-defined]
    told = [record.getMessage().rpartition(": ")[2] for record in caplog.records]
    assert told == [f"{each}; the earlier credentials are still valid" for each in ("no network", "no key", "no key")]


def test_a_failing_refresh_leaves_good_credentials_in_use_and_is_not_repeated_at_once() -> None:
    """While the old credentials are valid, attempts succeed, and the provider is called again a second later."""
    clock = ManualClock()
    done = threading.Event()

    def fail_later(call: int) -> None:
        if call > 1:
            done.set()
            raise RuntimeError("no")

    provider = Provider(clock, before=fail_later)
    cache = CredentialsCache(provider, clock, "t")
    cache.get()
    clock.advance(80)
    assert cache.get().access_key_id == "id-1"
    assert done.wait(60)
    refreshes = [thread for thread in threading.enumerate() if thread.name == "t"]
    for thread in refreshes:
        thread.join(60)
    assert cache.get().access_key_id == "id-1"
    assert provider.calls == 2
    clock.advance(1.5)
    cache.get()
    for thread in [thread for thread in threading.enumerate() if thread.name == "t"]:
        thread.join(60)
    assert provider.calls == 3


def test_a_provider_that_hangs_fails_the_attempt_after_its_time() -> None:
    """An attempt waits ten seconds for a provider, then it fails, and is retried."""
    clock = ManualClock()
    hold = threading.Event()
    provider = Provider(clock, before=lambda _call: hold.wait(30) and None)
    cache = CredentialsCache(provider, clock, "t")
    errors: list[Exception] = []

    def attempt() -> None:
        try:
            cache.get()
        except CredentialsError as error:
            errors.append(error)

    thread = threading.Thread(target=attempt)
    thread.start()
    tick = threading.Event()
    while not clock.waiting:
        tick.wait(0.002)
    clock.advance(10.1)
    thread.join(60)
    hold.set()
    assert "within 10 s" in str(errors[0])


def test_something_else_than_credentials_is_refused_by_name() -> None:
    """A provider that returns a dict gets an error that names the type."""

    class Wrong:
        def get_credentials(self) -> object:
            return {"access_key_id": "x"}

    cache = CredentialsCache(Wrong(), ManualClock(), "t")  # type: ignore[arg-type]
    with pytest.raises(CredentialsError, match="returned dict, not Credentials"):
        cache.get()


@pytest.mark.parametrize("hours", [-9, 9])
def test_a_step_of_the_clock_changes_nothing_for_credentials_in_use(hours: int) -> None:
    """After a step of this machine's time by hours, credentials are used and refreshed as if it had not been."""
    clock = ManualClock()
    issued = clock.time()
    provider = Provider(clock, life=3600)
    cache = CredentialsCache(provider, clock, "t")
    cache.get()
    clock.set_wall(issued + hours * 3600)
    clock.advance(3200)
    assert cache.get().access_key_id == "id-1"
    assert provider.calls == 1
    clock.advance(101)
    wait_for_calls(provider, cache, 2, "id-2")


def test_credentials_that_have_expired_already_are_refused_at_once() -> None:
    """The error says so, and says when they expired: the provider, or this machine's clock, is wrong."""
    clock = ManualClock(1000.0)
    cache = CredentialsCache(Provider(clock, life=-30), clock, "t")
    with pytest.raises(CredentialsError, match=r"returned credentials whose expires_at 970.0 is past"):
        cache.get()
