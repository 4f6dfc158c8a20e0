"""Ledgers of the read offsets that channels have from each source."""
