"""Demonstrate ``make run``: ship log files and verify that every line arrived."""
