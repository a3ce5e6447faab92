"""The Kafka wire protocol: frames, headers, and one message class per request and response.

`schema` turns messages into bytes and back, `apis` lists which message belongs to which API key,
`framing` cuts a stream into frames, and `messages` holds the classes, one module per API. Nothing
here knows logs, replicas or sockets.
"""
