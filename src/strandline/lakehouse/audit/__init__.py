"""Comparing the log directories of all replicas, byte by byte where they must be equal.

directories   which replicas lie where, and what the checkpoints say of them
files         the segments of one replica
walk          its batches in order, and everything that is wrong with them by themselves
epochs, indexes, transactions   what the walk checks along the way
compare       the batches of several replicas beside each other
compacted     the final value of each key, where compaction may have made the batches differ
partition     all of this for one partition
job           all partitions, on Spark or without
"""
