"""The pod of a container's log, from its path, as the kubelet lays out ``/var/log``.

* ``/var/log/pods/NAMESPACE_POD_UID/CONTAINER/0.log``: the file, or with Docker a link to it, with its
  rotated files beside it.
* ``/var/log/containers/POD_NAMESPACE_CONTAINER-ID.log``: a link to the one above.

No name in Kubernetes has an underscore.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

_NAME = "[^/_]+"
_IN_PODS = re.compile(rf"/(?P<namespace>{_NAME})_(?P<pod>{_NAME})_(?P<uid>{_NAME})/(?P<container>{_NAME})/[^/]+$")
_IN_CONTAINERS = re.compile(rf"/(?P<pod>{_NAME})_(?P<namespace>{_NAME})_(?P<container>{_NAME})-[0-9a-f]{{64}}\.log$")


def pod_headers(path: str) -> Mapping[str, str]:
    """Return the headers ``namespace``, ``pod``, ``container`` and ``uid``; none for a path of another form.

    :param path: the file's path. A link in ``containers`` is read, since only its target has the uid.
    """
    found = _IN_PODS.search(path)
    if found is None and (found := _IN_CONTAINERS.search(path)) is not None:
        found = _IN_PODS.search(_target_of(path)) or found
    return {} if found is None else found.groupdict()


def _target_of(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""  # the pod is gone, or the file is no link
