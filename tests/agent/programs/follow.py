"""Run an agent that follows ``logs/`` until it is killed, with a sink that writes each batch into a numbered file.

Arguments: the folder, and the type of the channel.
"""

import itertools
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from producer.agent import Agent, AgentConfig, ComponentConfig, EventBatch, SinkConfig, SourceConfig
from producer.agent.sinks import null


class KeepingSink(null.NullSink):
    """A sink that writes each batch into a file named after its number, so that a second delivery replaces the first.

    Without a file channel the names are new in each life.
    """

    folder = Path()
    life = ""
    numbers = itertools.count()

    def write(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            name = f"{self.life}{next(self.numbers) if self.life else batch.sequence}"
            part = self.folder / f".{name}"
            part.write_bytes(batch.lines())
            part.rename(self.folder / name)


def main(folder: Path, channel: str) -> None:
    KeepingSink.folder = folder / "out"
    KeepingSink.life = "" if channel == "file" else f"{os.getpid()}-"
    null.NullSink = KeepingSink  # type: ignore[misc]
    options = {"file_groups": {"g": f"{folder}/logs/" + r"a\.log.*"}}
    agent = Agent(
        AgentConfig(
            name="a",
            state=folder / "state",
            sources={"r": SourceConfig("r", "taildir", options, channels=("c",))},
            channels={"c": ComponentConfig("c", channel, {"memory_bytes": 2000} if channel == "spillable" else {})},
            sinks={"k": SinkConfig("k", "null", {}, channel="c")},
        )
    )
    agent.start()
    (folder / "started").touch()
    signal.sigwait([signal.SIGTERM])
    agent.stop(60)


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    main(Path(sys.argv[1]), sys.argv[2])
