"""Why something was refused, or does not go on: one table of rules, and what they are told of."""
