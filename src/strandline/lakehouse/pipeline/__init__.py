"""A table's pipeline: from its topics into it, for as long as it runs."""
