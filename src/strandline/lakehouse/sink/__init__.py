"""The Spark sink `strandline`: rows become records of topics, at least once.

format      what Spark calls: writers of batches and streams
options     what a user may say, with the names of Spark's own `kafka` sink
columns     which column means what, and which rows are refused
delivery    the records of one task on their way

`transactional` writes each batch of a stream exactly once (`strandline.TopicSink`).
"""
