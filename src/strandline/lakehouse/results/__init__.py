"""Results of Spark's queries as tables: what `strandline_table` writes, a batch exactly once.

rows of a task --columns, task--> files --committing--> the table, by (query, batch)
                                          |
                                          +--merging--> rows by key, where the table has keys

options     what a user may say
making      the table of it: found, or made
format      what Spark calls: writers of batches and streams
sink        `TableSink`, for `foreachBatch` and so for the output mode update
proof       what `table verify` can show of such a table
"""
