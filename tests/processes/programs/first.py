"""Print the CPU of the import and of the first producer of a process, in milliseconds."""

from __future__ import annotations

import os
import time

began = time.process_time()

import loghub

imported = time.process_time()
project = loghub.ProjectConfig(
    "my-project", endpoint=os.environ["LOGHUB_ENDPOINT"], credentials=loghub.EnvironmentCredentials()
)
with loghub.Producer(project):
    made = time.process_time()
print(f"import={round((imported - began) * 1000)} producer={round((made - imported) * 1000)}")
