"""The proof that a table holds what its topics held, exactly once."""
