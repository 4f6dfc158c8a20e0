"""Sinks with work to do while no events arrive."""

import pytest

from producer.agent import Context, Stop
from producer.agent.config.registry import class_of
from producer.agent.flow.counted_sink import CountedSink
from producer.agent.flow.health import Health
from producer.agent.flow.sink_runner import SinkRunner
from tests.agent.components import made


class _Ticking:
    most_events = most_bytes = 1

    def __init__(self, stop):
        self.ticks, self._stop = 0, stop

    def tick(self):
        self.ticks += 1
        if self.ticks == 2:
            self._stop.set()

    def close(self):
        pass


def _counted(sink):
    return CountedSink(lambda: sink, Health())


@pytest.mark.parametrize(("processor", "sinks"), [("default", 1), ("failover", 2), ("load_balance", 2)])
def test_every_sink_is_called_while_nothing_comes(tmp_path, processor, sinks):
    """A sink's ``tick`` is called while its channel is empty, also for each sink of a group."""
    stop, cls = Stop(), class_of("processors", processor)
    ticking = {f"k{number}": _Ticking(stop) for number in range(sinks)}
    channel = made("channels", "memory", tmp_path).open()
    counted = {name: _counted(sink) for name, sink in ticking.items()}
    group = cls(cls.Options(), Context("a1", "g", tmp_path), counted)
    runner = SinkRunner("g", channel, group, Health(), dead_letters=None, most_events=1, most_bytes=1)
    runner.run(stop)
    assert {sink.ticks for sink in ticking.values()} == {2}
    channel.close()
