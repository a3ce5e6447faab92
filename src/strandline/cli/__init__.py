"""The command `strandline`.

`main` is the entry. Each command is a module of its own that is imported only when it is called, so
that help appears at once and a broker does not load the client. Commands may use the drivers
(broker, client) and reading code of storage; they decide nothing.
"""
