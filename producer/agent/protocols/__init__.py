"""Message formats that sources and sinks of a protocol share, without their transport."""
