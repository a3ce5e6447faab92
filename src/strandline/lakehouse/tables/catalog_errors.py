"""What catalogs raise, and what is said of it.

Each kind of catalog has the errors of its own client: HTTP, SQL, Thrift, Amazon's.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

from pyiceberg.exceptions import OAuthError, RESTError
from sqlalchemy.exc import SQLAlchemyError

from strandline.lakehouse.locations.errors import cause_in, sentence
from strandline.lakehouse.locations.location import Location
from strandline.lakehouse.tables.catalogs import CatalogEntry


def _of_clients() -> tuple[type[Exception], ...]:
    found: list[type[Exception]] = [RESTError, OAuthError, SQLAlchemyError, OSError]
    if find_spec("botocore") is not None:
        from botocore.exceptions import BotoCoreError, ClientError

        found += [BotoCoreError, ClientError]
    if find_spec("thrift") is not None:
        from thrift.Thrift import TException

        found.append(TException)
    return tuple(found)


CATALOG_ERRORS: Final = _of_clients()
"""What can come out of a call of a catalog, or of the files that it reads and writes."""

_LONGEST: Final = 200
_CAUSES: Final = (
    (
        r"Unauthorized|\b401\b|OAuth|InvalidSignature|UnrecognizedClient",
        "does not accept the credentials",
    ),
    (r"Forbidden|\b403\b|AccessDenied", "does not permit it"),
    (
        r"ConnectionError|Connection refused|Max retries|EndpointConnection|TTransport"
        r"|could not connect|unable to open|resolve|Connection aborted"
        r"|RemoteDisconnected|reset by peer",
        "cannot be reached",
    ),
    (r"[Tt]imed? ?out", "does not answer in time"),
    (
        r"ServiceUnavailable|ServerError|\b5\d\d\b|CommitStateUnknown",
        "answers with an error of its own",
    ),
)


def trouble(entry: CatalogEntry, directory: Location, error: Exception) -> str:
    """Why a table could not be read or written: a sentence that names the catalog or the store."""
    text = f"{type(error).__name__}: {error}"
    if "AWS Error" in text or "Bucket" in text:
        return sentence(directory, "read or written", error)
    cause = cause_in(text, _CAUSES)
    if cause is not None:
        return f"The table {'.'.join(entry.name)}: {entry.shown} {cause}."
    line = " ".join(text.split())[:_LONGEST]
    return f"The table {'.'.join(entry.name)} in {entry.shown}: {line}."
