"""What a browser, a monitor or a curious person asks: ``/healthz``, ``/metrics`` and ``/console``."""
