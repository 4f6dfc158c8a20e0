# docker build -f application.Dockerfile -t my-application .
# docker run --stop-timeout 30 --env-file FILE -v application-state:/var/lib/my-application -p 8000:8000 my-application
# FILE has LOGHUB_ENDPOINT, LOGHUB_ACCESS_KEY_ID and LOGHUB_ACCESS_KEY_SECRET, and only root may read it.
FROM python:3.13-slim
# An init: Python as process 1 would ignore SIGTERM where it has no handler, and collect no orphans.
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends tini \
 && rm -rf /var/lib/apt/lists/*
# Beside this file: the wheel, which `make wheels` in a clone puts into dist; requirements.txt, with starlette and uvicorn here; the program.
COPY loghub_producer-*.whl requirements.txt /tmp/
RUN pip install --no-cache-dir /tmp/loghub_producer-*.whl -r /tmp/requirements.txt \
 && rm /tmp/loghub_producer-*.whl \
 && useradd --system --uid 10001 --create-home --home-dir /var/lib/my-application application
# examples/fastapi_lifespan.py: one producer for the life of the application, closed after the last request.
COPY fastapi_lifespan.py /srv/
WORKDIR /srv
USER 10001
# A file channel here survives the container.
VOLUME /var/lib/my-application
EXPOSE 8000
ENTRYPOINT ["tini", "--", "uvicorn", "fastapi_lifespan:app", "--host", "0.0.0.0", "--port", "8000"]
HEALTHCHECK --start-period=10s --timeout=5s \
  CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 8000), 5).close()"]
