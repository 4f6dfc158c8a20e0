"""Serve an agent's figures: Prometheus metrics, Flume's JSON, health, and a page."""

from .server import DEFAULT_PORT, MonitoringError, MonitoringServer, address_of

__all__ = ["DEFAULT_PORT", "MonitoringError", "MonitoringServer", "address_of"]
