"""The pipeline behind a channel, above ``pipeline``: stores what is sent, feeds it in, and acknowledges."""
