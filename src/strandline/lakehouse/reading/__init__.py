"""What there is to read, and reading exact ranges of it from brokers or from segment files."""
