"""The transaction coordinator: which transactions are open, how they end, and who is fenced.

A part that decides: it knows Kafka's messages and the records of its topic, never a log, a socket
or a clock. Start with `coordinator`; what one transactional id may do is in `transaction`.
"""
