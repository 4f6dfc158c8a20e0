"""Measurements, run by hand: ``python -m tests.benchmarks``. The test suite runs them with tiny sizes."""
