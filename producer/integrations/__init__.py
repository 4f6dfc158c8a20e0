"""At home where logs are made: each module fits one library, and is imported only by who uses that.

``logging`` has a handler, ``structlog`` a processor and a logger factory, ``loguru`` a sink, ``opentelemetry``
exporters and instruments, ``prometheus`` a collector. What they share: ``outlet`` (a stream, and what becomes of a log
that finds no memory), ``values`` (text of what has none), ``severity``.
"""
