"""Build components as an agent does, from the options of a configuration."""

from pathlib import Path
from typing import Any

from producer.agent import Context, EventBatch
from producer.agent.config.options import from_flume, read_options
from producer.agent.config.registry import class_of
from producer.runtime.clock import Clock, SystemClock


def made(kind: str, name: str, state: Path | str = "unused", clock: Clock | None = None, **options: Any) -> Any:
    cls = class_of(kind, name)
    context = Context("a1", name, Path(state), clock=clock or SystemClock())
    return cls(read_options(cls.Options, options, name), context)


def made_of_flume(kind: str, name: str, clock: Clock | None = None, state: Path | str = "unused", **texts: str) -> Any:
    """Build a component from the keys and texts of Flume's file; ``__`` stands for a dot."""
    given = {key.replace("__", "."): text for key, text in texts.items()}
    return made(kind, name, state, clock, **from_flume(class_of(kind, name).Options, given))


def interceptor(name: str, clock: Clock | None = None, **options: Any) -> Any:
    return made("interceptors", name, clock=clock, **options)


def lines(*bodies: str, **shared: str) -> EventBatch:
    return EventBatch.of_lines("".join(f"{body}\n" for body in bodies).encode(), shared)


def bodies(*texts: str, **shared: str) -> EventBatch:
    """Return a batch of bodies that need not be lines."""
    return EventBatch.of_bodies([text.encode() for text in texts], shared)


def headers(batch: EventBatch) -> list[dict[str, str]]:
    return list(batch.headers())
