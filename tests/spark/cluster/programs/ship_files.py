"""Ship a file from workers that get the SDK from the driver; print the workers' parent processes and the figures.

Arguments: the master; the file; the server's endpoint, access key id and secret.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console

from producer import ProjectConfig
from producer.ship.files.find import Search
from producer.ship.job import ShipJob
from producer.ship.session import running_context
from producer.ship.shipment import ship_search
from producer.ship.spark_engine import SparkEngine

MASTER, FILE, ENDPOINT, KEY_ID, SECRET = sys.argv[1:]


def look(_: int) -> tuple[str, str]:
    """Return the command of this worker's parent, and the path of its SDK."""
    import producer

    return sys.modules["__main__"].__spec__.name, Path(str(producer.__file__)).parents[1].name  # type: ignore[union-attr]


def main() -> None:
    project = ProjectConfig("test-project", endpoint=ENDPOINT, access_key_id=KEY_ID, access_key_secret=SECRET)
    job = ShipJob(project=project, logstore="test-logstore", parser="text")
    with running_context(master=MASTER) as context:
        shipped = ship_search(SparkEngine(context), Search([FILE]), job, console=Console(stderr=True))
        looked = context.parallelize(range(2), 2).map(look).collect()
    print(json.dumps({"lines": shipped.figures.lines, "failure": shipped.failure, "looked": looked}))


if __name__ == "__main__":
    main()
