"""From the bytes of a record's value to typed columns, or to a dead letter that says why not."""
