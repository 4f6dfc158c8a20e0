"""The pipeline with a durable channel, above ``pipeline``: stores records, feeds them to the pipeline, and
acknowledges.
"""
