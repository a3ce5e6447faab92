"""What a broker says of itself: the status document, its reference, and metrics made from it."""
