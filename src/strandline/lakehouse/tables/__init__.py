"""Tables that a topic becomes: what they are, how rows are written, how they are committed once."""
