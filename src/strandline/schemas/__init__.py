"""Values that need a schema: Confluent's framing, Avro, and where schemas come from.

Tables, the page and the command line read such values by this one room, so that they agree on what
a value is. It knows no topics beyond their names, no columns and no page.
"""
