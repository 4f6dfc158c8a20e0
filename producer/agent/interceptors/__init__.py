"""Interceptors: components that change events before they enter the channels."""
