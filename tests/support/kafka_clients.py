"""Give options for the Kafka clients that tests make."""

import logging
from typing import Any

#: Options of every client: librdkafka's log goes to the report of a failing test, not to the terminal.
QUIET: dict[str, Any] = {"logger": logging.getLogger("tests.librdkafka")}
#: The same for an ``AdminClient``, whose older versions take no logger.
QUIET_ADMIN: dict[str, Any] = {"log_level": 0}
