"""Draw how the concurrency limit of a destination follows its server, in simulated time; needs the extra ``bench``.

``python -m tests.benchmarks.concurrency --plot docs/images/concurrency.svg``
"""

import argparse
from pathlib import Path
from typing import Any

from tests.pipeline.sending.simulation import Server, Simulation

_THREADS, _UNTIL = 32, 210
#: The server's phases: from this second on it handles so many requests at a time, and accepts connections or not.
_PHASES = [(0, 8, True), (60, 3, True), (100, 16, True), (140, 16, False), (170, 16, True)]


def simulate() -> Simulation:
    """Simulate a busy stream to a server whose capacity changes and that is down for some seconds."""
    server = Server(noise=0.3)
    simulation = Simulation(_THREADS, {"p": server})
    simulation.backlog("p", "busy", 500_000)
    for at, capacity, reachable in _PHASES:
        simulation.at(at, lambda state=(capacity, reachable): _set(server, *state))  # type: ignore[misc]
    simulation.run(_UNTIL)
    return simulation


def _set(server: Server, capacity: int, reachable: bool) -> None:
    server.capacity, server.reachable = capacity, reachable


def draw(simulation: Simulation) -> Any:
    """Draw the limit and the capacity above, and the delivered batches below."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.hashsalt": "concurrency", "font.size": 9, "axes.spines.top": False})
    mpl.rcParams["axes.spines.right"] = False
    from matplotlib import pyplot

    figure, (above, below) = pyplot.subplots(2, 1, figsize=(8, 4.4), layout="constrained", sharex=True)
    times, limits = zip(*simulation.limits, (_UNTIL, simulation.limits[-1][1]), strict=True)
    above.step(times, limits, where="post", color="#0072B2", linewidth=1, label="limit")
    ends = [phase[0] for phase in _PHASES[1:]] + [_UNTIL]
    for (begin, capacity, reachable), end in zip(_PHASES, ends, strict=True):
        height = capacity if reachable else 0
        above.hlines(
            height, begin, end, color="#D55E00", linewidth=2, label=None if begin else "capacity of the server"
        )
    above.set_ylabel("requests at a time")
    above.set_ylim(0, _THREADS + 5)
    above.legend(frameon=False, loc="upper right", ncols=2)
    seconds = range(_UNTIL)
    below.step(seconds, [simulation.rate(at, at + 1) for at in seconds], where="post", color="#009E73", linewidth=1)
    below.set_ylabel("batches delivered a second")
    below.set_ylim(0, None)
    below.set_xlabel("seconds")
    return figure


def main() -> None:
    """Draw the simulation into a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plot", type=Path, required=True, help="where to write the picture")
    path = parser.parse_args().plot
    draw(simulate()).savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None, dpi=110)


if __name__ == "__main__":
    main()
