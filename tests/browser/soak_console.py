"""The console over ten million logs answers within a stated time, in bounded server memory.

Takes about three minutes; a part of ``make soak``.
"""

import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from playwright.sync_api import Page, expect

from producer import Producer, ProjectConfig

from ..server.process import MIB, ServerProcess

TOTAL, SLICE = 10_000_000, 200_000
BEGIN = 1_790_000_000
LOGS_PER_SECOND = 200
STATUSES = ["200"] * 7 + ["304", "404", "500"]
PATHS = ["/items", "/cart", "/orders", "/login"]

Open = Callable[..., Page]


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(data=tmp_path_factory.mktemp("data")) as server:
        keys = {"access_key_id": server.access_key_id, "access_key_secret": server.access_key_secret}
        with Producer(ProjectConfig("shop", endpoint=server.endpoint, **keys)) as producer:
            stream = producer.stream("shop", "access-log", topic="web")
            for begin in range(0, TOTAL, SLICE):
                stream.send_arrow(_logs(begin), time_column="at")
            producer.flush(timeout=300)
        yield server


def _logs(begin: int) -> pa.Table:
    numbers = pa.array(range(begin, begin + SLICE))
    prefix = pa.array(["req"] * SLICE)

    def pick(words: list[str], step: int) -> pa.Array:
        return pa.array([words[number * step % 97 % len(words)] for number in range(begin, begin + SLICE)])

    return pa.table(
        {
            "at": pc.add(pc.divide(numbers, LOGS_PER_SECOND), BEGIN),
            "status": pick(STATUSES, 31),
            "path": pick(PATHS, 17),
            "request": pc.binary_join_element_wise(prefix, pc.cast(numbers, pa.string()), "-"),
        }
    )


@pytest.mark.timeout(900)
def test_the_newest_logs_a_count_and_the_fields_appear_within_seconds(
    filled: ServerProcess, open_page: Open, record_property: Callable[[str, object], None]
) -> None:
    """The newest logs, a count and the fields appear within seconds; a longer scan shows its results so far."""
    page = open_page(f"{filled.endpoint}/console", color_scheme="light")
    expect(page.locator("#logstores tbody tr").first).to_contain_text("10,000,000", timeout=60_000)
    took = {}
    for name, query, limit in (
        ("everything", "", 10),
        ("common word", "status: 500", 10),
        ("rare word", 'request: "req-5000000"', 40),
    ):
        page.goto(
            f"{filled.endpoint}/console#search?logstore=shop/access-log&span=all&query={query.replace(' ', '%20')}"
        )
        begun = time.perf_counter()
        expect(page.locator("#logs > li summary").first).to_be_visible(timeout=limit * 1000)
        took[f"{name}: logs"] = time.perf_counter() - begun
        expect(page.locator("#total")).to_contain_text("log", timeout=limit * 1000)
        took[f"{name}: a first count"] = time.perf_counter() - begun
        if query != "status: 500":
            expect(page.locator("#fields details").first).to_be_visible(timeout=limit * 1000)
            took[f"{name}: all, with fields"] = time.perf_counter() - begun
        page.goto(f"{filled.endpoint}/console#logstores")
        page.locator("#logs").evaluate("list => list.replaceChildren()")
        page.locator("#fields").evaluate("list => list.replaceChildren()")
    expect(page.locator("#logstores tbody tr").first).to_be_visible()
    peak = filled.peak() / MIB
    for what, seconds in took.items():
        record_property(what, round(seconds, 2))
    print({what: round(seconds, 2) for what, seconds in took.items()}, f"peak {peak:.0f} MiB")
    assert peak < 400
