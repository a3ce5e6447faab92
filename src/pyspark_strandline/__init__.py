"""Registers the format `strandline` with Spark by being there: Spark looks for `pyspark_*` modules.

Spark imports this module in a process of its own at the first use of any Python data source. The
format itself is in `strandline.lakehouse.format`.
"""

from strandline.lakehouse.format import StrandlineDataSource as DefaultSource

__all__ = ["DefaultSource"]
