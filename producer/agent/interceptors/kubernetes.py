"""Add the labels of pods as headers, and do as their annotations say.

The header ``uid`` names an event's pod, as ``pod_headers`` of ``taildir`` adds it.

Annotations of a pod: ``loghub.io/exclude: "true"`` drops its events, ``loghub.io/parser: json`` adds the fields of its
lines as headers, as the interceptor ``parse`` does. A pod's user decides with them on the pod's own lines only.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from urllib.parse import urlsplit

from ...model.errors import ConfigError
from ...model.options import option
from ...runtime.loggers import get_logger
from ...text.addresses import bracketed
from ..events.batch import EventBatch
from ..events.interfaces import Context
from .parse import ParseInterceptor
from .pod_watch import Api, Pod, PodWatch

_log = get_logger("loghub.agent.source")

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_UID = "uid"
_EXCLUDE, _PARSER = "loghub.io/exclude", "loghub.io/parser"
#: Formats that need no options.
_PARSERS = ("json", "logfmt", "access", "syslog")


class KubernetesInterceptor:
    """Interceptor that adds labels and annotations of pods by the Kubernetes API, which also exclude or parse lines."""

    #: ``producer agent test`` passes it over.
    connects = True

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Options:
        """Address of the API, and the wanted metadata."""

        node: str = option(doc="name of this node, such as ${env:NODE_NAME}; added as the header node")
        labels: bool = option(True, doc="add each label as a header label.NAME")
        annotations: tuple[str, ...] = option((), doc="annotations that become headers annotation.NAME")
        api: str | None = option(None, doc="https:// address of the API; empty for that of the cluster around a pod")
        token_file: Path = option(_ACCOUNT / "token", doc="file with the token")
        ca_file: Path = option(_ACCOUNT / "ca.crt", doc="file with the certificates of the API's authority")
        wait: float = option(
            2.0, least=0, doc="seconds that the first lines after a start wait for the first list of pods, at most"
        )
        most_pods: int = option(2000, least=1, doc="maximum number of remembered pods, removed ones included")

        def __post_init__(self) -> None:
            url = urlsplit(self.api or "https:")
            if url.scheme != "https" or "@" in url.netloc:
                raise ConfigError("api", "must be https://host:port, since each request carries the token", self.api)

        def address(self) -> str:
            """Return the address of the API.

            :raises ConfigError: there is none.
            """
            host, port = (os.environ.get(f"KUBERNETES_SERVICE_{name}", "") for name in ("HOST", "PORT"))
            if self.api is None and not host:
                raise ConfigError("api", "is needed outside of pods: KUBERNETES_SERVICE_HOST is not set", None)
            return self.api or f"https://{bracketed(host)}:{port or 443}"

    def __init__(self, options: Options, context: Context) -> None:
        self._options, self._context, self._counters = options, context, context.counters
        api = Api(options.address(), options.token_file, options.ca_file)
        self._pods = PodWatch(api, options.node, options.most_pods, context.clock)
        self._parsers = {form: self._parser(form) for form in _PARSERS}
        self._warned: set[str] = set()

    def _parser(self, form: str) -> ParseInterceptor:
        return ParseInterceptor(ParseInterceptor.Options(format=form), self._context)

    def intercept(self, batch: EventBatch) -> EventBatch:
        self._pods.wait_for_first(self._options.wait)
        parts = [self._of_pod(uid, part) for uid, part in batch.split(_UID).items()]
        if len(parts) == 1:
            return parts[0]
        return EventBatch.of_events(chain.from_iterable(part.events() for part in parts), batch.position)

    def close(self) -> None:
        """End the watch."""
        self._pods.close()

    def _of_pod(self, uid: str | None, batch: EventBatch) -> EventBatch:
        if uid is None:
            return batch
        pod = self._pods.pod(uid)
        if pod is None:
            self._counters.add(UnknownPodCount=batch.count)
            return batch.with_shared({"node": self._options.node})
        if pod.annotations.get(_EXCLUDE) == "true":
            self._counters.add(EventDroppedCount=batch.count)
            return batch.select([False] * batch.count)
        return self._parsed(uid, pod, batch.with_shared({"node": self._options.node, **self._headers(pod)}))

    def _headers(self, pod: Pod) -> Mapping[str, str]:
        labels = pod.labels if self._options.labels else {}
        found = {f"label.{name}": value for name, value in labels.items()}
        wanted = (name for name in self._options.annotations if name in pod.annotations)
        return found | {f"annotation.{name}": pod.annotations[name] for name in wanted}

    def _parsed(self, uid: str, pod: Pod, batch: EventBatch) -> EventBatch:
        form = pod.annotations.get(_PARSER)
        if form is None:
            return batch
        if form in self._parsers:
            return self._parsers[form].intercept(batch)
        if form not in self._warned and len(self._warned) < self._options.most_pods:
            self._warned.add(form)
            _log.warning("pod %s: %s: %r is not one of %s; its lines stay raw", uid, _PARSER, form, ", ".join(_PARSERS))
        return batch
