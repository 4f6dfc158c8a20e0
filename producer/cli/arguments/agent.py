"""The arguments of ``producer agent``."""

from __future__ import annotations

import argparse

from ..parsing import add_action, positive_integer, set_examples

#: A copy of :data:`producer.agent.config.units.UNITS`, which imports slowly.
UNITS = ("systemd", "container", "kubernetes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``producer agent``."""
    _add_file(parser, None)
    parser.add_argument("--until-done", action="store_true", help="end when everything is delivered")
    parser.add_argument("--no-reload", action="store_true", help="do not reload the file when it changes")
    actions = parser.add_subparsers(dest="action", metavar="ACTION", title="actions, instead of running the agent")
    check = add_action(actions, "check", "list what would run, or all errors; start nothing")
    _add_file(check, argparse.SUPPRESS)
    check.add_argument("--connect", action="store_true", help="also connect to every LogHub and peer")
    test = add_action(actions, "test", "run the file's [[tests]]; with SOURCE, show each stage's work on sample lines")
    _add_file(test, argparse.SUPPRESS)
    test.add_argument("source", nargs="?", metavar="SOURCE", help="the source that reads the sample lines")
    test.add_argument("--input", metavar="FILE", help="the file with the lines; default: standard input")
    test.add_argument(
        "--header",
        metavar="NAME=VALUE",
        action="append",
        default=[],
        help="a header of the source's events; repeatable",
    )
    turn = add_action(actions, "convert", "translate a Flume file to TOML, on standard output")
    turn.add_argument("--flume", metavar="FILE", default=argparse.SUPPRESS, help="a properties file")
    turn.add_argument("--name", metavar="AGENT", default=argparse.SUPPRESS, help="the agent's name in it")
    tell = add_action(actions, "explain", "describe a type and its options; without TYPE, list all types")
    tell.add_argument("type", nargs="?", metavar="TYPE", help="such as taildir, sinks.http or Flume's name")
    form = add_action(actions, "schema", "print a JSON Schema of the TOML file, for completion and checks in an editor")
    seen = add_action(actions, "top", "show the figures of a running agent, once a second")
    _add_running(seen)
    seen.add_argument("--once", action="store_true", help="print the figures of one second, and end")
    tap = add_action(actions, "tap", "print a sample of the events that pass a running agent's source or sink")
    tap.add_argument("component", metavar="SOURCE|SINK", help="its name; sources.NAME or sinks.NAME if both have one")
    _add_running(tap)
    rate = "events a second, at most 100; default: %(default)s"
    tap.add_argument("--rate", type=positive_integer, default=10, metavar="N", help=rate)
    tap.add_argument("-n", "--limit", type=positive_integer, metavar="N", help="end after N events")
    text = add_action(actions, "unit", "print a file that runs the agent as a service")
    text.add_argument("kind", choices=UNITS, help="the kind of service")
    text.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="the agent's configuration")
    checked = "producer agent check --config agent.toml"
    set_examples(check, checked, f"{checked} --connect")
    tested = "producer agent test --config agent.toml"
    set_examples(test, tested, f"head -n 3 access.log | {tested} access", f"{tested} access --input access.log")
    set_examples(turn, "producer agent convert --flume flume.properties --name a1 > agent.toml")
    set_examples(tell, "producer agent explain", "producer agent explain taildir")
    set_examples(form, "producer agent schema > agent.schema.json")
    set_examples(seen, "producer agent top", "producer agent top --config agent.toml --once")
    set_examples(tap, "producer agent tap access", "producer agent tap loghub --config agent.toml --limit 5")
    set_examples(text, "producer agent unit systemd --config /etc/loghub-agent.toml")
    set_examples(
        parser,
        "producer agent --config agent.toml",
        "producer agent --config agent.toml --until-done",
        "producer agent --flume flume.properties --name a1",
        "producer agent check --config agent.toml",
    )


def _add_running(action: argparse.ArgumentParser) -> None:
    """Add the options that name a running agent."""
    action.add_argument("--config", metavar="FILE", default=argparse.SUPPRESS, help="a file that has the address")
    where = "the address of its monitoring; default: 127.0.0.1:9180"
    action.add_argument("--monitoring", metavar="HOST:PORT", default=argparse.SUPPRESS, help=where)


def _add_file(parser: argparse.ArgumentParser, default: object) -> None:
    """Add the options of the configuration.

    :param default: ``SUPPRESS`` for an action, so that its parser keeps options given before the action.
    """
    off = False if default is None else default
    parser.add_argument("--config", metavar="FILE", default=default, help="the configuration, in TOML")
    parser.add_argument("--flume", metavar="FILE", default=default, help="a Flume properties file, instead of --config")
    parser.add_argument("--name", metavar="AGENT", default=default, help="the agent's name in Flume's file")
    parser.add_argument("--state", metavar="DIR", default=default, help="the state directory; overrides the file")
    parser.add_argument(
        "--monitoring", metavar="HOST:PORT", default=default, help="where to serve metrics; overrides the file"
    )
    parser.add_argument(
        "--ignore-unknown", action="store_true", default=off, help="skip unknown options of Flume's file"
    )
