"""The Spark source `strandline`: topics as rows, in batches and streams, in exact offset ranges.

format      what Spark calls: the data source and its two readers
options     what a user may say, with the names of Spark's own `kafka` source (`option_names`)
places      where to begin and to end
positions   offsets of many partitions, as Spark keeps them in a checkpoint
starting    places become positions
planner     ranges of a batch query, and of a stream, batch by batch
facts       what the cluster says before a batch is decided
progress    the decision: new partitions, lost records, how much one batch takes
splits      ranges into tasks
losses      requested offsets that no longer exist: fail or warn
task        the records of one task
"""
