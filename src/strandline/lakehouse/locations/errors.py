"""What an object store does to a caller, said in sentences.

The libraries' own texts are those of HTTP clients, with requests, hosts and retries in them; what
is missing can mostly be told from a word in them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import ClassVar, Final

from strandline.errors import StrandlineError
from strandline.lakehouse.locations.location import Location


class StoreTrouble(StrandlineError):
    """A store refused, or did not answer; the same may work later, and then nothing was lost.

    It does not say whether what was asked for happened: files that a commit may name must stay.
    """

    retriable: ClassVar[bool] = False


_CAUSES: Final = (
    (
        r"NO_SUCH_BUCKET|NoSuchBucket|bucket does not exist|ContainerNotFound|container does not"
        r"|ContainerBeingDeleted",
        "the bucket {bucket} is not there. Make it, or correct --tables.",
    ),
    (
        r"ACCESS_DENIED|AccessDenied|AuthorizationFailure|AuthorizationPermissionMismatch"
        r"|\b403\b|Forbidden|PermissionDenied|lacked the required permissions|UNAUTHORIZED|Unauth",
        "the store does not permit it. The credentials (from the environment, a profile or the "
        "machine's role) must allow to list, read, write and delete there.",
    ),
    (
        r"INVALID_ACCESS_KEY|InvalidAccessKeyId|SIGNATURE_DOES_NOT_MATCH|SignatureDoesNotMatch"
        r"|EXPIRED_TOKEN|ExpiredToken|INVALID_CLIENT_TOKEN|AuthenticationFailed|\b401\b"
        r"|InvalidToken|[Cc]redential",
        "the store does not accept the credentials of this process, or there are none. They are "
        "taken from the environment, a profile or the machine's role.",
    ),
    (
        r"SLOW_DOWN|SlowDown|SERVICE_UNAVAILABLE|ServiceUnavailable|ServerBusy|\b503\b|\b429\b"
        r"|\b50[024]\b|InternalError|INTERNAL_FAILURE|Busy",
        "the store is too busy, or broken (it answers with an error of its own).",
    ),
    (
        r"REQUEST_TIMEOUT|timed out|Timeout was reached",
        "the store does not answer in time.",
    ),
    (
        r"NETWORK_CONNECTION|[Cc]onnect|resolve host|dns error|error sending request|Broken pipe"
        r"|reset by peer|closed before",
        "the store cannot be reached. Check its address (AWS_ENDPOINT_URL, where it is not "
        "Amazon's) and the network.",
    ),
    (
        r"libhdfs|libjvm|CLASSPATH",
        "Hadoop's native client (libhdfs) is missing: set HADOOP_HOME, JAVA_HOME and CLASSPATH.",
    ),
)


_NO_STATUS: Final = re.compile(r"https?://\S+|\d+(?:\.\d+)?(?:ns|us|µs|ms|s)\b")


def cause_in(text: str, causes: Iterable[tuple[str, str]]) -> str | None:
    """What is said of the first pattern that is in the text of an error; None if none is.

    Addresses and durations do not count: 403.9 ms are no status.
    """
    told = _NO_STATUS.sub("", text)
    return next((cause for pattern, cause in causes if re.search(pattern, told)), None)


def sentence(location: Location, what: str, error: BaseException) -> str:
    """Why something could not be done to a location: one sentence, and what helps."""
    text = str(error)
    cause = cause_in(text, _CAUSES)
    if cause is not None:
        return f"{location} could not be {what}: {cause.format(bucket=location.authority)}"
    line = " ".join(text.split())
    return f"{location} could not be {what}: {line[:_LONGEST]}."


_LONGEST: Final = 300


@contextmanager
def told(location: Location, what: str) -> Iterator[None]:
    """Raises StoreTrouble for what a store's library raises; errors of local disks pass, and name
    the file."""
    try:
        yield
    except FileNotFoundError:
        raise  # an absent file is the caller's business
    except OSError as error:
        if not location.is_local:
            raise StoreTrouble(sentence(location, what, error)) from error
        if error.errno is None or error.filename is not None:
            raise
        raise OSError(error.errno, os.strerror(error.errno), str(location)) from error
