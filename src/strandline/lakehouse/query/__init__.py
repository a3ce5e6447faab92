"""Tables read by their names: from Spark, from DuckDB, and as pyarrow's datasets."""
