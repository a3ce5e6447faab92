"""Whether the files of logs are sound, and the replicas of a partition equal where they must be.

directories   which replicas lie where, and what the checkpoints say of them
files         the segments of one replica
walk          its batches in order, and everything that is wrong with them by themselves
indexes       what an entry of an index promises: also for `dump --verify` and the simulator
epochs, segment_indexes, transactions   what the walk checks along the way
compare       the batches of several replicas beside each other
compacted     the final value of each key, where compaction may have made the batches differ
partition     all of this for one partition
"""
