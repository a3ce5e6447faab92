"""A table made again from the log, beside the live one, and what differs."""
