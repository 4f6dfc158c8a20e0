"""The memory budget of a listening source: in total, and for each address."""

from producer.agent.sources.budget import Budget, Holding


def test_one_address_gets_at_most_half_of_the_budget_for_any_number_of_messages() -> None:
    """One address gets at most half of the budget, for any number of messages, and can reserve released bytes again."""
    budget = Budget(100, 10)
    greedy, again, other = Holding(budget, "a"), Holding(budget, "a"), Holding(budget, "b")
    assert greedy.take(30)
    assert again.take(20)
    assert not again.take(1)
    assert other.take(50)
    assert not other.take(1)
    greedy.keep(25)
    assert again.take(5)
    for holding in (greedy, again, other):
        holding.keep(0)
    assert budget.left == 100


def test_a_message_of_the_largest_size_fits_an_unused_budget() -> None:
    """A message of the largest size fits an unused budget, however small that is."""
    assert Holding(Budget(100, 90), "a").take(90)
    assert not Holding(Budget(100, 90), "a").take(91)


def test_objects_made_of_a_message_do_not_count_against_its_addresss_share() -> None:
    """Objects made of a message do not count against its address's share, only against the whole budget."""
    holding = Holding(Budget(100, 10), "a")
    assert holding.take(50)
    assert holding.take(50, within_share=False)
    assert not holding.take(1, within_share=False)


def test_an_address_that_holds_nothing_is_not_kept() -> None:
    """An address that holds no bytes takes no memory in the budget."""
    budget = Budget(100, 10)
    for size in (5, 0):
        holding = Holding(budget, "a")
        assert holding.take(size)
        holding.keep(0)
    assert not budget._of_peers


def test_the_youngest_message_with_bytes_is_withdrawn_for_an_older_one_one_at_a_time() -> None:
    """The youngest message with bytes is withdrawn for an older one, one at a time; the oldest is never withdrawn."""
    budget, closed = Budget(100, 10), list[str]()
    old, young, other = Holding(budget, "a"), Holding(budget, "a"), Holding(budget, "b")
    assert old.take(25)
    assert young.take(25)
    assert other.take(50)
    with (
        old.coming(1.0, lambda: closed.append("old")),
        young.coming(2.0, lambda: closed.append("young")),
        other.coming(1.5, lambda: closed.append("other")),
    ):
        young.wait(10, 0)
        assert not closed
        old.wait(10, 0)
        old.wait(10, 0)
        assert closed == ["young"]
        assert young.withdrawn
        young.keep(0)
        assert old.take(10)
        young.wait(1, 60)  # it is withdrawn, so the call returns at once
        assert not old.withdrawn
        assert not other.withdrawn
