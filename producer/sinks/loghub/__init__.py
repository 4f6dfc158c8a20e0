"""Batches leave for LogHub: requests, answers, projects, credentials; over ``http``."""
