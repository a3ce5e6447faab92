"""Record batches as Arrow record batches, in the rows of Spark's own `kafka` source."""
