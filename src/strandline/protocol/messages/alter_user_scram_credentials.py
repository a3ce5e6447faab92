"""AlterUserScramCredentials: give users credentials of SCRAM, and take them away (KIP-554)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    binary,
    int8,
    int16,
    int32,
    message,
    nullable_string,
    string,
    structure,
)


@structure
class ScramCredentialDeletion:
    """A credential to be taken away."""

    name: str = string()
    mechanism: int = int8()


@structure
class ScramCredentialUpsertion:
    """A credential to be given. The password was salted by the client, and never sent."""

    name: str = string()
    mechanism: int = int8()
    iterations: int = int32()
    salt: bytes = binary()
    salted_password: bytes = binary()


@message("0", flexible="0+")
class AlterUserScramCredentialsRequest:
    """All changes."""

    deletions: list[ScramCredentialDeletion] = array(ScramCredentialDeletion)
    upsertions: list[ScramCredentialUpsertion] = array(ScramCredentialUpsertion)


@structure
class AlterUserScramCredentialsResult:
    """What became of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()


@message("0", flexible="0+")
class AlterUserScramCredentialsResponse:
    """The users."""

    throttle_time_ms: int = int32()
    results: list[AlterUserScramCredentialsResult] = array(AlterUserScramCredentialsResult)
