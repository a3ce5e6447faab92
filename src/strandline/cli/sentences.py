"""What commands say of an error. It imports little, since each command needs it at its end."""

from __future__ import annotations

from strandline.errors import InvariantViolated, ProtocolError, StrandlineError


def sentence_of(error: StrandlineError | OSError) -> str:
    """What to tell a person."""
    if isinstance(error, ProtocolError):
        return f"{error.sentence} [{error.code.name}]"
    cause = error.__cause__
    if isinstance(error, InvariantViolated) and isinstance(cause, UnicodeEncodeError):
        return f"{cause.object!r} cannot be sent: it is not UTF-8."  # it was an argument
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}."
    if isinstance(error, OSError) and error.strerror is not None:
        return error.strerror
    return str(error)
