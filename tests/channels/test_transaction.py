"""States of a transaction: the permitted calls, the same for every channel."""

import threading
from collections.abc import Callable, Sequence

import pytest

from producer import InvalidArgumentError
from producer.channels import Event, MemoryChannel, Stored
from producer.channels.transaction import TRANSITIONS, BaseTransaction, TransactionState
from producer.model.errors import ChannelError, TransactionStateError
from tests.support.waiting import Call

S = TransactionState


class Scripted(BaseTransaction):
    """Records its calls, and raises on request."""

    def __init__(self) -> None:
        super().__init__("test")
        self.did: list[object] = []
        self.error: BaseException | None = None

    def _did(self, what: object) -> None:
        self.did.append(what)
        if self.error is not None:
            raise self.error

    def _do_put(self, events: Sequence[Event]) -> None:
        self._did(("put", events))

    def _do_take(self, count: int, max_bytes: int | None, timeout: float | None) -> list[Event]:
        self._did(("take", count, max_bytes, timeout))
        return [Event()] * count

    def _do_acknowledge(self, events: Sequence[Event]) -> None:
        self._did(("acknowledge", events))

    def _do_give_back(self, events: Sequence[Event]) -> None:
        self._did(("give_back", events))

    def _do_commit(self, timeout: float | None) -> Stored:
        self._did(("commit", timeout))
        return Stored.CACHE

    def _do_rollback(self) -> None:
        self._did("rollback")


#: A call, its permitted states, and the state after it (None for unchanged).
CALLS: dict[str, tuple[Callable[[BaseTransaction], object], set[S], S | None]] = {
    "begin": (lambda tx: tx.begin(), {S.NEW}, S.OPEN),
    "put": (lambda tx: tx.put(Event()), {S.OPEN}, None),
    "put_many": (lambda tx: tx.put_many([Event()]), {S.OPEN}, None),
    "take": (lambda tx: tx.take(), {S.OPEN}, None),
    "acknowledge": (lambda tx: tx.acknowledge([]), {S.OPEN}, None),
    "give_back": (lambda tx: tx.give_back([]), {S.OPEN}, None),
    "commit": (lambda tx: tx.commit(), {S.OPEN}, S.COMPLETED),
    "rollback": (lambda tx: tx.rollback(), {S.OPEN}, S.COMPLETED),
    "close": (lambda tx: tx.close(), {S.NEW, S.COMPLETED}, S.CLOSED),
}


def in_state(state: S, how: str = "commit") -> Scripted:
    """Return a transaction in ``state``, completed by ``how``."""
    transaction = Scripted()
    if state is not S.NEW:
        transaction.begin()
    if state in {S.COMPLETED, S.CLOSED}:
        getattr(transaction, how)()
    if state is S.CLOSED:
        transaction.close()
    transaction.did.clear()
    return transaction


@pytest.mark.parametrize("how", ["commit", "rollback"])
@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize("call", CALLS)
def test_every_call_in_every_state(call: str, state: S, how: str) -> None:
    """Each call works in its permitted states, and raises in others without effect."""
    function, allowed, after = CALLS[call]
    transaction = in_state(state, how)
    if state in allowed:
        function(transaction)
        assert transaction.state is (after or state)
        return
    with pytest.raises(TransactionStateError) as caught:
        function(transaction)
    assert transaction.state is state
    assert transaction.did == []
    assert f"{call.removesuffix('_many')}() on a transaction that is {state.value}" in str(caught.value)


def test_the_permitted_calls_and_the_table_of_transitions_agree() -> None:
    """The permitted calls and the table of transitions agree."""
    done = {(state, after) for _, allowed, after in CALLS.values() if after for state in allowed}
    assert done == {(state, after) for state, afters in TRANSITIONS.items() for after in afters}


def test_a_second_begin_raises_and_the_transaction_stays_open() -> None:
    """A second begin raises, and the transaction stays open."""
    transaction = in_state(S.OPEN)
    with pytest.raises(TransactionStateError, match="commit or roll back first"):
        transaction.begin()
    transaction.put(Event())
    assert transaction.commit() is Stored.CACHE


@pytest.mark.parametrize("error", [ChannelError("test", "no"), RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_commit_that_fails_leaves_the_transaction_open(error: BaseException) -> None:
    """A failed commit leaves the transaction open for a retry."""
    transaction = in_state(S.OPEN)
    transaction.error = error
    with pytest.raises(type(error)):
        transaction.commit(7.0)
    assert transaction.state is S.OPEN
    transaction.error = None
    assert transaction.commit() is Stored.CACHE
    assert transaction.did == [("commit", 7.0), ("commit", None)]


def test_after_a_failed_commit_a_rollback_is_allowed() -> None:
    """After a failed commit a rollback is permitted."""
    transaction = in_state(S.OPEN)
    transaction.error = ChannelError("test", "full")
    with pytest.raises(ChannelError):
        transaction.commit()
    transaction.error = None
    transaction.rollback()
    transaction.close()
    assert transaction.state is S.CLOSED


def test_after_a_failed_commit_a_close_is_refused() -> None:
    """After a failed commit a close is refused."""
    transaction = in_state(S.OPEN)
    transaction.error = ChannelError("test", "full")
    with pytest.raises(ChannelError, match="full"):
        transaction.commit()
    with pytest.raises(TransactionStateError):
        transaction.close()
    assert transaction.state is S.OPEN


@pytest.mark.parametrize("error", [ChannelError("test", "no"), RuntimeError("a bug"), KeyboardInterrupt()])
def test_a_rollback_that_raises_has_happened(error: BaseException) -> None:
    """A rollback that raises has taken effect."""
    transaction = in_state(S.OPEN)
    transaction.error = error
    with pytest.raises(type(error)):
        transaction.rollback()
    transaction.error = None
    assert transaction.state is S.COMPLETED
    with pytest.raises(TransactionStateError):
        transaction.rollback()
    transaction.close()
    assert transaction.did == ["rollback"]


@pytest.mark.parametrize("call", ["put", "put_many", "take", "acknowledge"])
def test_a_put_or_take_that_raises_leaves_the_transaction_open(call: str) -> None:
    """A failed put or take leaves the transaction open."""
    transaction = in_state(S.OPEN)
    transaction.error = ChannelError("test", "no")
    with pytest.raises(ChannelError):
        CALLS[call][0](transaction)
    transaction.error = None
    transaction.commit()


def test_an_open_transaction_cannot_be_closed() -> None:
    """An open transaction cannot be closed."""
    transaction = in_state(S.OPEN)
    with pytest.raises(TransactionStateError, match="close\\(\\) on a transaction that is open: commit or roll back"):
        transaction.close()
    transaction.rollback()
    transaction.close()


def test_leaving_the_block_commits_and_closes() -> None:
    """The end of a block commits and closes."""
    with Scripted() as transaction:
        transaction.put(Event())
    assert [what[0] for what in transaction.did] == ["put", "commit"]
    assert transaction.state is S.CLOSED


def test_an_exception_in_a_block_rolls_back_and_propagates() -> None:
    """An exception in a block rolls back and propagates."""
    transaction = Scripted()
    with pytest.raises(KeyError, match="mine"), transaction:
        raise KeyError("mine")
    assert transaction.did == ["rollback"]
    assert transaction.state is S.CLOSED


def test_a_failed_commit_at_the_end_of_the_block_rolls_back_and_raises() -> None:
    """A failed commit at the end of a block rolls back and raises."""
    transaction = Scripted()

    def run() -> None:
        with transaction:
            transaction.error = ChannelError("test", "full")

    with pytest.raises(ChannelError, match="full"):
        run()
    assert transaction.did == [("commit", None), "rollback"]
    assert transaction.state is S.CLOSED


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_the_block_may_end_its_transaction_itself(end: str) -> None:
    """A block may end its transaction itself."""
    with Scripted() as transaction:
        getattr(transaction, end)()
    assert len(transaction.did) == 1
    assert transaction.state is S.CLOSED


def test_put_many_takes_any_iterable_and_reads_it_once() -> None:
    """put_many reads any iterable once, and puts nothing if it fails."""
    transaction = in_state(S.OPEN)
    transaction.put_many(Event({}, body) for body in (b"1", b"2"))
    assert transaction.did == [("put", [Event({}, b"1"), Event({}, b"2")])]

    def failing() -> object:
        yield Event()
        raise OSError("the source broke")

    with pytest.raises(OSError, match="the source broke"):
        transaction.put_many(failing())  # type: ignore[arg-type]
    assert len(transaction.did) == 1


@pytest.mark.parametrize("count", [0, -1])
def test_a_take_of_nothing_is_a_mistake(count: int) -> None:
    """A take with a count below 1 is refused."""
    with pytest.raises(InvalidArgumentError, match=f"at least 1, got {count}"):
        in_state(S.OPEN).take(count)


def test_a_transaction_goes_from_thread_to_thread() -> None:
    """A transaction may move between threads."""
    channel = MemoryChannel()
    transaction = channel.transaction()
    Call(transaction.begin).result()
    Call(lambda: transaction.put(Event({}, b"1"))).result()
    Call(transaction.commit).result()
    transaction.close()
    assert channel.stats().size == 1


def test_each_call_of_transaction_makes_a_new_one() -> None:
    """Several transactions may be open at once in one thread."""
    channel = MemoryChannel()
    one, two = channel.transaction(), channel.transaction()
    assert one is not two
    one.begin()
    two.begin()
    one.put(Event({}, b"1"))
    two.put(Event({}, b"2"))
    two.commit()
    one.commit()
    with channel.transaction() as transaction:
        assert [event.body for event in transaction.take(2)] == [b"2", b"1"]


def test_of_two_threads_that_end_a_transaction_one_wins() -> None:
    """Of eight threads that begin a transaction one succeeds."""
    for _ in range(50):
        transaction, barrier = Scripted(), threading.Barrier(8)

        def race(transaction: Scripted = transaction, barrier: threading.Barrier = barrier) -> bool:
            barrier.wait()
            try:
                transaction.begin()
            except TransactionStateError:
                return False
            return True

        assert sorted(call.result() for call in [Call(race) for _ in range(8)]) == [False] * 7 + [True]
