"""Options of a logstore and its credentials, common to the source and the sink of LogHub."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ...model.config import ProjectConfig
from ...model.credentials import CREDENTIALS_NAMES
from ...model.errors import ConfigError
from ...model.options import option
from ...text.names import LOGSTORE_RULE, is_logstore_name
from .proxies import PROXY

_CREDENTIALS = "credentials", "access_key_id", "access_key_secret", "security_token"


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreOptions:
    """The logstore, and the credentials.

    :raises ConfigError: an option is invalid.
    """

    project: str = option(doc="project of the logstore")
    logstore: str = option(doc="name of the logstore")
    endpoint: str = option("", doc="endpoint of the service, such as https://cn-hangzhou.log.aliyuncs.com")
    endpoints: tuple[str | Mapping[str, str], ...] = option(
        (),
        doc="several endpoints of the project, in place of endpoint: the first one that answers is used. After the "
        'first, a table such as { endpoint = "…", project = "…" } is an endpoint of another project. It has the same '
        "credentials unless the table has others, and perhaps a region. What may be in one project may be in both",
        secret=True,
    )
    credentials: str | None = option(None, doc=f"source of the key, in place of one: {CREDENTIALS_NAMES}")
    access_key_id: str | None = option(None, doc="id of an access key", secret=True)
    access_key_secret: str | None = option(
        None, doc="its secret; prefer ${env:NAME} or ${file:/path} to the text", secret=True
    )
    security_token: str | None = option(None, doc="token of temporary credentials", secret=True)
    sign_version: Literal["v1", "v4"] = option("v1", doc="version of signatures; v4 needs a region")
    region: str | None = option(None, doc="region, such as cn-hangzhou")
    proxy: str | None = option(None, secret=True, doc=PROXY)

    def account(self) -> ProjectConfig:
        """Return the project with its credentials.

        :raises ConfigError: an option is invalid.
        """
        if not is_logstore_name(self.logstore):
            raise ConfigError("logstore", LOGSTORE_RULE, self.logstore)
        return ProjectConfig(
            self.project,
            endpoint=self.endpoint,
            endpoints=[each if isinstance(each, str) else self._elsewhere(each) for each in self.endpoints],
            **self._credentials(),
        )

    def _credentials(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _CREDENTIALS}

    def _elsewhere(self, table: Mapping[str, str]) -> ProjectConfig:
        """Return the project of a table in ``endpoints``, with its own credentials or those of the component."""
        own = {} if table.keys() & set(_CREDENTIALS) else self._credentials()
        project = table.get("project", "")
        try:
            return ProjectConfig(project, **own, **{name: text for name, text in table.items() if name != "project"})
        except ConfigError as error:
            raise ConfigError("endpoints", f"{error.name} of {project!r}: {error.rule}", "endpoints") from error
