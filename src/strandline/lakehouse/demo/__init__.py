"""The demonstration: a cluster, real events, the table that fills, and questions to it."""
