"""Why records of a partition are still there, or gone: what a broker says when it is asked."""
