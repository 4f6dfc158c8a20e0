"""Measure the producer beside what a user could pick instead: ``python -m tests.benchmarks``.

Every outcome is kept and checked, and a sample of the arrived logs is decoded and compared with the sent ones, so that
no client can be fast by sending nothing. Results are kept in ``.bench/results.json``; a run replaces the results of its
cases. :mod:`.ship` measures the cases ``ship``, ``ship-text`` and so on; it has its own options: ``--case ship
--help``.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from . import ship
from .cases import OURS, Case
from .catalogue import all_cases
from .machine import describe
from .measure import measure
from .participants import Participants
from .peers import PEERS, prepare, versions
from .plots import draw_all
from .report import DOCUMENT, TABLES, insert, report, summary
from .results import RESULTS, Results, load, merge

_SHIPPING = ("ship", *(f"ship-{name}" for name in ship.CASES))


def parsed(argv: list[str] | None) -> argparse.Namespace:
    """Return the arguments of the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--list", action="store_true", help="the cases and the peers")
    parser.add_argument("--case", nargs="+", metavar="ID", help="default: all")
    parser.add_argument("--peers", nargs="*", metavar="NAME", choices=PEERS, help="default: all; without names: none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--scale", type=float, default=1, help="of the logs and the seconds of each run")
    parser.add_argument("--file", help="whose lines the case 'file' sends")
    parser.add_argument("--write", action="store_true", help=f"write {DOCUMENT} and its plots, instead of printing")
    parser.add_argument("--from", dest="source", type=Path, metavar="PATH", help="measure nothing, take these results")
    parser.add_argument(
        "--results", type=Path, help=f"where they are kept; default: {RESULTS}, and nowhere if --scale is not 1"
    )
    return parser.parse_args(argv)


def shipping(argv: Sequence[str]) -> list[str] | None:
    """Return the arguments for :mod:`.ship` if only its cases are chosen, else None."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--case", nargs="+", default=[])
    args, rest = parser.parse_known_args(argv)
    names = [name.removeprefix("ship-") for name in args.case if name in _SHIPPING]
    if not names or len(names) < len(args.case):
        return None
    return [*rest, *(() if "ship" in names else ("--case", *names))]


def measured(args: argparse.Namespace, cases: dict[str, Case]) -> Results:
    """Measure the chosen cases, and write the results of each case as soon as it ends."""
    peers = set(PEERS if args.peers is None else args.peers)
    chosen = {name: cases[name].of_clients(peers) for name in args.case or cases}
    needed = {run.client for case in chosen.values() for run in case.runs.values()} - set(OURS)
    left_out = prepare(needed, lambda text: print(text, file=sys.stderr))
    found = versions(sorted(needed - set(left_out)))
    machine = describe({name: f"{PEERS[name].title} {version}" for name, version in found.items()})
    kept = args.results or (RESULTS if args.scale == 1 else None)
    results: Results = {}
    for name, case in chosen.items():
        print(f"{name}: {case.title}", file=sys.stderr)
        begun = time.monotonic()
        with Participants() as participants:
            result = measure(case.scaled(args.scale), participants, args.rounds, left_out)
        print(f"  {time.monotonic() - begun:.0f} s", file=sys.stderr)
        results[name] = dataclasses.replace(result, machine=machine, scale=args.scale)
        if kept:
            merge(kept, results)
    return load(kept) if kept else results


def file_of(results: Results) -> str | None:
    """Return the file whose lines the results are about, or None."""
    runs = results["file"].runs.values() if "file" in results else ()
    return next((run.run.shape for run in runs), None)


def main(argv: list[str] | None = None) -> int:
    """Measure the cases, write the results and print the report."""
    argv = sys.argv[1:] if argv is None else argv
    if (arguments := shipping(argv)) is not None:
        return ship.main(arguments)
    args = parsed(argv)
    cases = all_cases(args.file)
    unknown = [name for name in args.case or () if name not in cases]
    if unknown:
        print(f"no such case: {', '.join(unknown)}; there are {', '.join(cases)}", file=sys.stderr)
        return 2
    if args.list:
        titles = [f"{case.id:12} {case.title}" for case in cases.values()]
        print("\n".join([*titles, f"by themselves: {', '.join(_SHIPPING)}", f"peers: {', '.join(PEERS)}"]))
        return 0
    results = load(args.source) if args.source else measured(args, cases)
    cases = all_cases(args.file or file_of(results))
    if not args.write:
        chosen = {name: case for name, case in cases.items() if name in results}
        print(f"{summary(results, {})}\n\n{report(chosen, results)}")
        return 0
    plots = draw_all(results, DOCUMENT.parent)
    DOCUMENT.write_text(insert(DOCUMENT.read_text(), "summary", summary(results, plots)))
    TABLES.write_text(insert(TABLES.read_text(), "tables", report(cases, results)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
