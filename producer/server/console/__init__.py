"""Pages for browsers, monitors and people: ``/healthz``, ``/metrics`` and ``/console``."""
