"""Queue: which events are in the channel, who has taken them, and how their bodies are read."""
