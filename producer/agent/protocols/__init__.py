"""What a source and a sink of the same protocol have in common: messages, and nothing of how they travel."""
