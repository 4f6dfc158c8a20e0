"""Recovery: checkpoints, the reading of a channel's files when it opens, and the tools that inspect and repair them."""
