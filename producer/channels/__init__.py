"""Channels: where events wait, inside a transaction, from those who put to those who take."""
