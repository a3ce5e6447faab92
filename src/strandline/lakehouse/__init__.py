"""Topics as tables, on Spark."""
