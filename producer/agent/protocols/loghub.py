"""Options of a logstore and its credentials, common to the source and the sink of LogHub."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...model.config import ProjectConfig
from ...model.credentials import CREDENTIALS_NAMES
from ...model.errors import ConfigError
from ...model.options import option
from ...text.names import LOGSTORE_RULE, is_logstore_name
from .proxies import PROXY


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreOptions:
    """The logstore, and the credentials.

    :raises ConfigError: an option is invalid.
    """

    project: str = option(doc="project of the logstore")
    logstore: str = option(doc="name of the logstore")
    endpoint: str = option(doc="endpoint of the service, such as https://cn-hangzhou.log.aliyuncs.com")
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
            endpoints=getattr(self, "endpoints", ()),  # of the sink alone
            access_key_id=self.access_key_id,
            access_key_secret=self.access_key_secret,
            security_token=self.security_token,
            credentials=self.credentials,
        )
