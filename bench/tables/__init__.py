"""From a topic to a table, beside Spark's own ways of doing it: `python -m bench.tables`."""
