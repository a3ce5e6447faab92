"""The Spark source `strandline`: topics as rows, in batches and streams, in exact offset ranges.

format      what Spark calls: the data source and its two readers
options     what a user may say, with the names of Spark's own `kafka` source
places      where to begin and to end
positions   offsets of many partitions, as Spark keeps them in a checkpoint
starting    places become positions
batch       ranges of a batch query
planner     ranges of a stream, batch by batch: new partitions, lost records, limits
limits      how much of what is there one batch takes
splits      ranges into tasks
losses      what was asked for and is not there any more: fail, or say so
reading     the records of one task
"""
