"""A member of a consumer group of the consumer protocol (KIP-848), without socket, thread or clock.

`member` says what happens; `heartbeats` is how it speaks to its coordinator, `assignment` what it
has and is to have, `topic_names` what the topics are called that the coordinator names by id.
"""
