"""Recovery: checkpoints, what a channel makes of its files when it opens, and the tools that look and mend."""
