"""The sink for LogHub: requests, answers, projects and credentials, over ``http``."""
