# docker build -t loghub-agent .
# docker build -t loghub-agent --build-arg EXTRAS=agent,kafka .   installs what other components need, here Kafka's.
# docker build -t loghub-agent --build-arg PACKAGES=systemd .   installs journalctl, for the source journald.
# docker run --stop-timeout 60 -v /var/log:/var/log:ro -v agent-state:/var/lib/loghub-agent loghub-agent
# Secrets from the environment (env:NAME): write lines NAME=value into a file that only root may read, and use
# docker run --env-file FILE. Secrets from files (file:/path) need -v /path:/path:ro.
# syslog, http, forward and other network sources listen on 127.0.0.1, which is this container alone: set
# bind = "0.0.0.0" on them, and publish their ports, as in docker run -p 5140:5140.
FROM python:3.13-slim
ARG EXTRAS=agent
ARG PACKAGES=""
# Not pinned: the newest have Debian's security updates.
# hadolint ignore=DL3008
RUN if [ -n "$PACKAGES" ]; then apt-get update && apt-get install --yes --no-install-recommends $PACKAGES \
 && rm -rf /var/lib/apt/lists/*; fi
# The wheel: `make wheels` in a clone puts it into dist; copy it beside this file.
COPY loghub_producer-*.whl /tmp/
# Group adm may read most logs. A user of a number, since Kubernetes checks runAsNonRoot by it.
RUN pip install --no-cache-dir "$(echo /tmp/loghub_producer-*.whl)[$EXTRAS]" \
 && rm /tmp/loghub_producer-*.whl \
 && useradd --system --uid 10001 --groups adm --create-home --home-dir /var/lib/loghub-agent agent
COPY agent.toml /etc/loghub-agent/agent.toml
USER 10001
VOLUME /var/lib/loghub-agent
EXPOSE 9180
# The agent is its own init: as process 1 it runs in a child, passes signals on, and collects the processes of commands.
# 0.0.0.0, since the container's loopback cannot be reached from outside.
ENTRYPOINT ["producer", "agent", "--config", "/etc/loghub-agent/agent.toml", "--state", "/var/lib/loghub-agent", \
            "--monitoring", "0.0.0.0:9180"]
HEALTHCHECK --start-period=10s --timeout=5s \
  CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:9180/health/live')"]
