"""Registers the format `strandline_table` with Spark by being there, as `pyspark_strandline` does.

The format itself is in `strandline.lakehouse.query.format`.
"""

from strandline.lakehouse.query.format import TableDataSource as DefaultSource

__all__ = ["DefaultSource"]
