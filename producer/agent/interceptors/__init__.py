"""Interceptors: what changes events on their way into the channels."""
