"""What commands say of an error. It imports little, since each command needs it at its end."""

from __future__ import annotations

from strandline.errors import ProtocolError, StrandlineError


def sentence_of(error: StrandlineError | OSError) -> str:
    """What to tell a person."""
    if isinstance(error, ProtocolError):
        return f"{error.message or error.code.name} [{error.code.name}]"
    if isinstance(error.__cause__, UnicodeEncodeError):  # bytes of an argument that are no UTF-8
        return f"{error.__cause__.object!r} cannot be sent: it is not UTF-8."
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror
    return str(error)
