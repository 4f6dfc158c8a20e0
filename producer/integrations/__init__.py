"""Integrations with logging and metrics libraries, one module for each library.

``logging`` has a handler, ``structlog`` a processor and a logger factory, ``loguru`` a sink, ``opentelemetry``
exporters and instruments, ``prometheus`` a collector. They share ``outlet`` (a stream, and the handling of logs that
cannot be enqueued), ``values`` (the text of arbitrary objects) and ``severity``.
"""
