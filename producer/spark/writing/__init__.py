"""Write a DataFrame to LogHub: the batch and streaming writers of ``format("loghub")``, and ``write_partition``."""
