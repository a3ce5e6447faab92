"""A lakehouse for the demo: where its table lies, and how other processes find it there.

The table is an Iceberg table in a bucket of an S3 server, with its name in an SQL catalog (SQLite).
Nothing of it needs a jar. This file must not start processes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.lakehouse.locations.location import Location

if TYPE_CHECKING:
    from strandline.lakehouse.tables.definition import TableSpec

BUCKET: Final = "lake"
NAMESPACE: Final = "bronze"
_PROXIES: Final = ("no_proxy", "NO_PROXY")
_OTHER_KEYS: Final = ("AWS_PROFILE", "AWS_SESSION_TOKEN", "AWS_ENDPOINT_URL_S3")


@dataclass(frozen=True, slots=True)
class Lake:
    """A bucket of the server at `endpoint`; the catalog's file is in the directory `home`."""

    endpoint: str
    home: Path

    @property
    def tables(self) -> Location:
        """The directory of its tables."""
        return Location.parse(f"s3://{BUCKET}/{NAMESPACE}")

    def define(self, spec: TableSpec) -> TableSpec:
        """The same table here, and in the catalog."""
        return replace(
            spec,
            location=str(self.tables / spec.name),
            format="iceberg",
            catalog="sql",
            catalog_properties={"uri": f"sqlite:///{(self.home / 'catalog.db').absolute()}"},
            namespace=NAMESPACE,
        )

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to read it. The server takes any keys: these are no secret."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "demo",
            "AWS_SECRET_ACCESS_KEY": "demo",
            "STRANDLINE_TABLES": str(self.tables),
        }

    def enter(self) -> None:
        """Let this process use it, and Spark, which it starts."""
        for name in _OTHER_KEYS:
            os.environ.pop(name, None)
        os.environ.update(self.environment)
        # Keys of a machine's role are asked for over a network that may not answer.
        os.environ["AWS_EC2_METADATA_DISABLED"] = "true"
        for name in _PROXIES:
            others = os.environ.get(name)
            os.environ[name] = f"127.0.0.1,{others}" if others else "127.0.0.1"
