"""DescribeUserScramCredentials: which users may log in with SCRAM (KIP-554)."""

from __future__ import annotations

from strandline.protocol.declare import (
    array,
    int8,
    int16,
    int32,
    message,
    nullable_array,
    nullable_string,
    string,
    structure,
)


@structure
class UserName:
    """One user."""

    name: str = string()


@message("0", flexible="0+")
class DescribeUserScramCredentialsRequest:
    """The users of interest; none, or null, means all."""

    users: list[UserName] | None = nullable_array(UserName)


@structure
class CredentialInfo:
    """What is told of a credential."""

    mechanism: int = int8()
    iterations: int = int32()


@structure
class DescribeUserScramCredentialsResult:
    """The credentials of one user."""

    user: str = string()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    credential_infos: list[CredentialInfo] = array(CredentialInfo)


@message("0", flexible="0+")
class DescribeUserScramCredentialsResponse:
    """The users."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = nullable_string()
    results: list[DescribeUserScramCredentialsResult] = array(DescribeUserScramCredentialsResult)
