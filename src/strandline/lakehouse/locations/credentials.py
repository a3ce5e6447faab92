"""What the libraries that open a store are told of it: addresses and patience, never a key.

Theory: a key that this package never holds cannot get into a log, a plan, or a pickle that Spark's
page shows. Each library looks for credentials itself, where the store's own tools do: in the
environment, in the profile that the environment names, in the role of the machine. What is handed
on is public: addresses, regions, the *name* of a profile. The driver's are taken along to tasks
(`public_settings`), as far as a task's machine does not say otherwise.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from strandline.errors import InvalidSetting
from strandline.lakehouse.locations.location import Location

_PUBLIC: Final = (
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_REGION",
    "AWS_DEFAULT_REGION",
    "AWS_PROFILE",
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "AZURE_STORAGE_ACCOUNT_NAME",
    "AZURE_STORAGE_USE_EMULATOR",
    "AZURITE_BLOB_STORAGE_URL",
    "STORAGE_EMULATOR_HOST",
)
"""Names of settings that hold no secret, and say where a store is."""
_REGION: Final = "us-east-1"
"""Where no region is named; stores other than Amazon's ignore it."""
_CONNECT_S: Final = 5
_ANSWER_S: Final = 30
_RETRY_S: Final = 10
_RETRIES: Final = 3
"""How long one call may take before a sentence is said: trying again is the run's business."""
_EMULATED_ACCOUNT: Final = "devstoreaccount1"


def public_settings() -> dict[str, str]:
    """What this process is told of stores, without its keys, for another process."""
    return {name: os.environ[name] for name in _PUBLIC if os.environ.get(name)}


def take_settings(settings: Mapping[str, str]) -> None:
    """Be told what another process was, where this one's environment does not say it."""
    for name, value in settings.items():
        os.environ.setdefault(name, value)


def s3_endpoint() -> str | None:
    """The address of the S3 service, if it is not Amazon's. Raises InvalidSetting."""
    for name in ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"):
        text = os.environ.get(name)
        if not text:
            continue
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
            raise InvalidSetting(name, f"{name} must be an address such as http://HOST:PORT.")
        return text.rstrip("/")
    return None


def s3_region() -> str | None:
    """The region; None leaves it to the profile, or to the store."""
    named = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    return named or (_REGION if s3_endpoint() else None)


def azure_account(location: Location) -> str:
    """The account of a container. Raises InvalidSetting if neither address nor environment says."""
    account = location.authority.partition("@")[2].partition(".")[0]
    account = account or os.environ.get("AZURE_STORAGE_ACCOUNT_NAME", "")
    if not account and _emulated():
        account = _EMULATED_ACCOUNT
    if not account:
        raise InvalidSetting(
            "location",
            f"{location} names no account: write abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/... "
            "or set AZURE_STORAGE_ACCOUNT_NAME.",
        )
    return account


def bucket_of(location: Location) -> str:
    """The bucket or container."""
    return location.authority.partition("@")[0]


def for_arrow(location: Location) -> tuple[str, dict[str, Any]]:
    """The name of pyarrow's class for a store, and its arguments."""
    if location.scheme == "s3":
        return "S3FileSystem", _s3_for_arrow()
    if location.scheme == "gs":
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        address = urlsplit(emulator) if emulator else None
        local = {"endpoint_override": address.netloc, "scheme": address.scheme} if address else {}
        return "GcsFileSystem", {"anonymous": True, **local} if local else {}
    if location.scheme == "abfs":
        return "AzureFileSystem", _azure_for_arrow(location)
    host, _, port = location.authority.partition(":")
    return "HadoopFileSystem", {"host": host or "default", "port": int(port or 0)}


def for_delta(location: Location) -> dict[str, str]:
    """Options of delta-rs for a table there; it finds the keys itself."""
    options = _patience()
    if location.scheme == "s3":
        # Of two commits of one version, the store itself refuses the second.
        options["conditional_put"] = "etag"
        if not os.environ.get("AWS_ACCESS_KEY_ID"):
            # Else it looks for profiles and roles only where the address is Amazon's.
            options["aws_force_credential_load"] = "true"
        if (endpoint := s3_endpoint()) is not None:
            options["aws_endpoint"] = endpoint
            options["allow_http"] = str(endpoint.startswith("http:")).lower()
        if (region := s3_region()) is not None:
            options["aws_region"] = region
    elif location.scheme == "abfs":
        options["azure_storage_account_name"] = azure_account(location)
        if _emulated():
            options["azure_storage_use_emulator"] = "true"
    return options


def for_iceberg(location: Location) -> dict[str, str]:
    """Properties of pyiceberg's FileIO for a table there."""
    if location.scheme == "s3":
        properties = {"s3.connect-timeout": str(_CONNECT_S), "s3.request-timeout": str(_ANSWER_S)}
        if (endpoint := s3_endpoint()) is not None:
            properties["s3.endpoint"] = endpoint
        if (region := s3_region()) is not None:
            properties["s3.region"] = region
        return properties
    if location.scheme == "abfs":
        properties = {"adls.account-name": azure_account(location)}
        if (host := _emulator()) is not None:
            properties |= {
                "adls.blob-storage-authority": host,
                "adls.dfs-storage-authority": host,
                "adls.blob-storage-scheme": "http",
                "adls.dfs-storage-scheme": "http",
            }
        # It hands them to pyarrow, and keeps them in this process.
        key = {f"adls.{name.replace('_', '-')}": value for name, value in _azure_key().items()}
        return properties | key
    return {}


def for_obstore(location: Location) -> dict[str, Any]:
    """Arguments of `obstore.store.from_url` for a bucket. Raises InvalidSetting."""
    arguments: dict[str, Any] = {
        "client_options": {"timeout": f"{_ANSWER_S}s", "connect_timeout": f"{_CONNECT_S}s"},
        "retry_config": {
            "max_retries": _RETRIES,
            "retry_timeout": timedelta(seconds=_RETRY_S),
        },
    }
    if location.scheme == "s3":
        endpoint = s3_endpoint()
        arguments |= {"endpoint": endpoint} if endpoint else {}
        arguments |= {"region": region} if (region := s3_region()) else {}
        if endpoint and endpoint.startswith("http:"):
            arguments["client_options"]["allow_http"] = True
        if _has_profile():
            arguments["credential_provider"] = _profile()
    elif location.scheme == "abfs":
        arguments["account_name"] = azure_account(location)
        if _emulated():
            arguments["use_emulator"] = True
            arguments["client_options"]["allow_http"] = True
    return arguments


def _s3_for_arrow() -> dict[str, Any]:
    from pyarrow.fs import AwsStandardS3RetryStrategy

    arguments: dict[str, Any] = {
        "connect_timeout": float(_CONNECT_S),
        "request_timeout": float(_ANSWER_S),
        "retry_strategy": AwsStandardS3RetryStrategy(max_attempts=_RETRIES),
        # A small file is one request, and a large one begins with its first part.
        "allow_delayed_open": True,
    }
    if (endpoint := s3_endpoint()) is not None:
        scheme, _, rest = endpoint.partition("://")
        arguments |= {"endpoint_override": rest, "scheme": scheme}
    if (region := s3_region()) is not None:
        arguments["region"] = region
    if os.environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true":
        arguments["force_virtual_addressing"] = True
    return arguments


def _azure_for_arrow(location: Location) -> dict[str, Any]:
    arguments: dict[str, Any] = {"account_name": azure_account(location)}
    if (host := _emulator()) is not None:
        arguments |= {
            "blob_storage_authority": host,
            "dfs_storage_authority": host,
            "blob_storage_scheme": "http",
            "dfs_storage_scheme": "http",
        }
    return arguments | _azure_key()


def _azure_key() -> dict[str, str]:
    """For pyarrow's part in this process: the one library that does not look for it by itself."""
    for argument, names in (
        ("account_key", ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY")),
        ("sas_token", ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")),
    ):
        given = [os.environ[name] for name in names if os.environ.get(name)]
        if given:
            return {argument: given[0]}
    return {}


def _patience() -> dict[str, str]:
    return {
        "timeout": f"{_ANSWER_S}s",
        "connect_timeout": f"{_CONNECT_S}s",
        "max_retries": str(_RETRIES),
        "retry_timeout": f"{_RETRY_S}s",
    }


def _emulated() -> bool:
    return os.environ.get("AZURE_STORAGE_USE_EMULATOR", "").lower() in ("true", "1")


def _emulator() -> str | None:
    """Where Azurite listens, if it is asked for."""
    if not _emulated():
        return None
    return urlsplit(os.environ.get("AZURITE_BLOB_STORAGE_URL", "http://127.0.0.1:10000")).netloc


def _has_profile() -> bool:
    """Whether keys are to come from a file of profiles."""
    if os.environ.get("AWS_ACCESS_KEY_ID"):
        return False
    file = os.environ.get("AWS_SHARED_CREDENTIALS_FILE") or "~/.aws/credentials"
    return bool(os.environ.get("AWS_PROFILE")) or Path(file).expanduser().exists()


def _profile() -> Any:
    """What gives obstore the keys of the profile. Raises InvalidSetting where boto3 is missing."""
    try:
        from obstore.auth.boto3 import Boto3CredentialProvider
    except ModuleNotFoundError:
        raise InvalidSetting(
            "AWS_PROFILE",
            "Keys from a profile of AWS need the package boto3: pip install boto3, or set "
            "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY.",
        ) from None
    return Boto3CredentialProvider()
