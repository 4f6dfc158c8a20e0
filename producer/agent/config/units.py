"""Write files that run an agent as a service: for systemd, in a container, and on each node of a Kubernetes cluster."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

_SYSTEMD = """\
# /etc/systemd/system/loghub-agent.service
# Secrets, such as LOGHUB_ACCESS_KEY_SECRET=..., belong in /etc/loghub-agent/environment, which only root may read.
[Unit]
Description=Agent that delivers logs
Wants=network-online.target
After=network-online.target
# Restart after every failure, without a limit.
StartLimitIntervalSec=0

[Service]
Type=notify
ExecStart={command} agent --config {config}{options}
ExecReload=/bin/kill -HUP $MAINPID
EnvironmentFile=-/etc/loghub-agent/environment
Restart=on-failure
RestartSec=5
# Exit status 2 is an invalid configuration: a restart cannot help.
RestartPreventExitStatus=2
# More than the agent's stop_timeout.
TimeoutStopSec={grace}
# Group adm may read most logs.
DynamicUser=yes
SupplementaryGroups=adm
StateDirectory=loghub-agent
CPUQuota=50%
MemoryMax=512M
LimitNOFILE=65536
NoNewPrivileges=yes
ProtectSystem=strict
# All paths that the agent writes to: directories of file_roll and objects, spool directories, other channels.
ReadWritePaths=-/var/lib/loghub-agent{writes}
ProtectHome=read-only
PrivateTmp=yes

[Install]
WantedBy=multi-user.target
"""

_CONTAINER = """\
# docker build -t loghub-agent .
# docker build -t loghub-agent --build-arg EXTRAS=agent,kafka .   installs what other components need, here Kafka's.
# docker build -t loghub-agent --build-arg PACKAGES=systemd .   installs journalctl, for the source journald.
# docker run --stop-timeout {grace} -v /var/log:/var/log:ro -v agent-state:/var/lib/loghub-agent loghub-agent
# Secrets from the environment (env:NAME): write lines NAME=value into a file that only root may read, and use
# docker run --env-file FILE. Secrets from files (file:/path) need -v /path:/path:ro.
# syslog, http, forward and other network sources listen on 127.0.0.1, which is this container alone: set
# bind = "0.0.0.0" on them, and publish their ports, as in docker run -p 5140:5140.
FROM python:3.13-slim
ARG EXTRAS={extras}
ARG PACKAGES={packages}
# Not pinned: the newest have Debian's security updates.
# hadolint ignore=DL3008
RUN if [ -n "$PACKAGES" ]; then apt-get update && apt-get install --yes --no-install-recommends $PACKAGES \\
 && rm -rf /var/lib/apt/lists/*; fi
# The wheel: `make wheels` in a clone puts it into dist; copy it beside this file.
COPY loghub_producer-*.whl /tmp/
# Group adm may read most logs. A user of a number, since Kubernetes checks runAsNonRoot by it.
RUN pip install --no-cache-dir "$(echo /tmp/loghub_producer-*.whl)[$EXTRAS]" \\
 && rm /tmp/loghub_producer-*.whl \\
 && useradd --system --uid 10001 --groups adm --create-home --home-dir /var/lib/loghub-agent agent
COPY {name} {config}
USER 10001
VOLUME /var/lib/loghub-agent
EXPOSE 9180
# The agent is its own init: as process 1 it runs in a child, passes signals on, and collects the processes of commands.
# 0.0.0.0, since the container's loopback cannot be reached from outside.
ENTRYPOINT ["producer", "agent", "--config", "{config}", "--state", "/var/lib/loghub-agent", \\
            "--monitoring", "0.0.0.0:9180"]
HEALTHCHECK --start-period=10s --timeout=5s \\
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9180/health/live')"]
"""

_KUBERNETES = """\
# kubectl create configmap loghub-agent --from-file={name} && kubectl apply -f this-file.yaml
# Secrets: kubectl create secret generic loghub-agent --from-literal=LOGHUB_ACCESS_KEY_ID=... and so on.
apiVersion: apps/v1
kind: DaemonSet
metadata:
  name: loghub-agent
  labels:
    app: loghub-agent
spec:
  selector:
    matchLabels:
      app: loghub-agent
  template:
    metadata:
      labels:
        app: loghub-agent
      annotations:
        prometheus.io/scrape: "true"
        prometheus.io/port: "9180"
    spec:
      # The agent asks the cluster nothing.
      automountServiceAccountToken: false
      # More than the agent's stop_timeout.
      terminationGracePeriodSeconds: {grace}
      tolerations:
        - operator: Exists
      containers:
        - name: agent
          image: loghub-agent:latest
          args: ["--config", "{config}", "--state", "/var/lib/loghub-agent", "--monitoring", "0.0.0.0:9180"]
          env:
            - name: NODE_NAME
              valueFrom:
                fieldRef:
                  fieldPath: spec.nodeName
          envFrom:
            - secretRef:
                name: loghub-agent
                optional: true
          ports:
            - name: monitoring
              containerPort: 9180
          livenessProbe:
            httpGet:
              path: /health/live
              port: monitoring
            periodSeconds: 10
          readinessProbe:
            httpGet:
              path: /health/ready
              port: monitoring
            periodSeconds: 10
          resources:
            requests:
              cpu: 50m
              memory: 128Mi
            limits:
              cpu: 500m
              memory: 512Mi
          securityContext:
            # Root owns the logs of all containers, and DAC_READ_SEARCH reads those of other users.
            runAsUser: 0
            allowPrivilegeEscalation: false
            readOnlyRootFilesystem: true
            capabilities:
              drop: [ALL]
              add: [DAC_READ_SEARCH]
            seccompProfile:
              type: RuntimeDefault
          volumeMounts:
            - name: config
              mountPath: {folder}
              readOnly: true
            - name: logs
              mountPath: /var/log
              readOnly: true
            - name: containers
              mountPath: /var/lib/docker/containers
              readOnly: true
            # For the source journald with root = "/host".
            - name: logs
              mountPath: /host/var/log
              readOnly: true
            - name: volatile-logs
              mountPath: /host/run/log
              readOnly: true
            - name: state
              mountPath: /var/lib/loghub-agent
            - name: scratch
              mountPath: /tmp
      volumes:
        - name: config
          configMap:
            name: loghub-agent
        - name: logs
          hostPath:
            path: /var/log
        - name: containers
          hostPath:
            path: /var/lib/docker/containers
        - name: volatile-logs
          hostPath:
            path: /run/log
            type: DirectoryOrCreate
        - name: state
          hostPath:
            path: /var/lib/loghub-agent
            type: DirectoryOrCreate
        - name: scratch
          emptyDir: {{}}
"""

UNITS = {"systemd": _SYSTEMD, "container": _CONTAINER, "kubernetes": _KUBERNETES}
_STATE = "/var/lib/loghub-agent"
_DEFAULT_CONFIG = "/etc/loghub-agent/agent.toml"
_MORE_SECONDS = 30
#: The directories that PrivateTmp replaces.
_PRIVATE = ("/tmp/", "/var/tmp/")  # noqa: S108  # compared with, not used


def unit(
    kind: str,
    config: str | None = None,
    state: str | None = None,
    stop_timeout: float = 30.0,
    extras: Iterable[str] = ("agent",),
    packages: Iterable[str] = (),
) -> str:
    """Return the text of a service file.

    :param kind: one of ``UNITS``.
    :param config: the agent's file. A relative path is relative to the current directory for systemd, and otherwise to
        the directory in the container.
    :param state: the agent's state directory; None for systemd's own.
    :param stop_timeout: the longest graceful shutdown of the agent, in seconds. The service gets 30 seconds more.
    :param extras: the package extras to install in the container.
    :param packages: the packages of Debian to install there.
    """
    path = _where(kind, config)
    options = f" --state {_STATE}" if state is None else ""
    writes = "" if state is None else f" {state}"
    return UNITS[kind].format(
        config=path,
        name=path.name,
        folder=path.parent,
        extras=",".join(extras),
        packages=f'"{" ".join(packages)}"',
        options=options,
        writes=writes,
        command=_command(),
        grace=math.ceil(stop_timeout) + _MORE_SECONDS,
    )


def hidden_by(kind: str, config: str | None, state: str | None) -> list[str]:
    """Return the paths in /tmp and /var/tmp, which PrivateTmp hides from a systemd service."""
    named = [str(_where(kind, config)), _command(), *([] if state is None else [state])]
    return [path for path in named if kind == "systemd" and path.startswith(_PRIVATE)]


def _where(kind: str, config: str | None) -> PurePosixPath:
    default = PurePosixPath(_DEFAULT_CONFIG)
    if config is None:
        return default
    if kind == "systemd":
        return PurePosixPath(Path(config).absolute())
    path = PurePosixPath(config)
    return path if path.is_absolute() else default.with_name(path.name)


def _command() -> str:
    """Return the path of this ``producer``, which may be in a virtual environment that is not on the service's PATH."""
    here = Path(sys.executable).parent / "producer"
    return str(here) if here.is_file() else "/usr/bin/env producer"
