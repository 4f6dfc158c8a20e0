"""The public modules of ``producer.integrations``."""
