"""Inspect: questions that only Strandline brokers answer (design note 0012). Not one of Kafka's.

A subject with arguments goes in, a document comes out; both are JSON objects in UTF-8, so that new
subjects need no new version. They are bytes here because a string of the protocol ends at 32,767.
"""

from __future__ import annotations

from strandline.protocol.declare import binary, int16, message, nullable_string, string


@message("0", flexible="0+")
class InspectRequest:
    """Asks one broker. `arguments` is a JSON object; none at all stands for an empty one."""

    subject: str = string()
    arguments: bytes = binary()


@message("0", flexible="0+")
class InspectResponse:
    """The document, or why there is none."""

    error_code: int = int16()
    error_message: str | None = nullable_string(default=None)
    document: bytes = binary()
