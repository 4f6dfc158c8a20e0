"""Read offsets of sources: up to where the channels have what a source read."""
