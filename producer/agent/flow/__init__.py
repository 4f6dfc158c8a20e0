"""The path of a batch through the agent: outlet, selector, channel, sink runner."""
