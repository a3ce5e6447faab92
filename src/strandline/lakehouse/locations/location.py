"""`Location`: where a directory or a file of a table is, on this machine or in an object store.

    file      /data/tables/orders                        a path, or file:///data/tables/orders
    s3        s3://BUCKET/bronze/orders                   s3a: and s3n: are the same store
    gs        gs://BUCKET/bronze/orders
    abfs      abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/bronze/orders      (abfss:, az: too)
    hdfs      hdfs://NAMENODE:8020/bronze/orders

Theory: a location means the same place to the driver and to every task, wherever they were started.
So it is absolute from the moment of a table's definition, and it is an address and nothing else: no
user, no key, no query string can be in it, since it is written into definitions, logs and plans.
What opens a store is asked of the machine's environment by name, where the store is opened
(`credentials`). This file imports no library, so that the command line can ask it before anything
else.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote, unquote, urlsplit

from strandline.errors import InvalidSetting

LOCAL: Final = "file"
_SCHEMES: Final = {
    "s3": "s3",
    "s3a": "s3",
    "s3n": "s3",
    "gs": "gs",
    "gcs": "gs",
    "abfs": "abfs",
    "abfss": "abfs",
    "az": "abfs",
    "hdfs": "hdfs",
}
"""The store that a URI's scheme means."""
_SERVED: Final = "a directory, or a URI that begins with file:, s3:, gs:, abfs: or hdfs:"
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):/")
_THIS_MACHINE: Final = ("", "localhost")
_AUTHORITY: Final = {
    "s3": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}"),
    "gs": re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}"),
    "abfs": re.compile(r"[a-z0-9$][a-z0-9-]{0,62}(@[a-z0-9]{3,24}(\.[A-Za-z0-9.-]+)?)?"),
    "hdfs": re.compile(r"[A-Za-z0-9._-]*(:[0-9]{1,5})?"),
}
_AUTHORITY_IS: Final = {
    "s3": "the name of a bucket",
    "gs": "the name of a bucket",
    "abfs": "CONTAINER@ACCOUNT.dfs.core.windows.net",
    "hdfs": "a name node, HOST:PORT",
}
_KEY: Final = re.compile(r"(/[A-Za-z0-9!_.'()=:+,-][A-Za-z0-9!_.'()=:+, -]*)*/?")
"""What every library escapes, or leaves alone, in the same way."""
_UNCLEAR: Final = re.compile(r"[%#?\x00-\x1f]")
"""What makes a local path another one for those who read it as a URI, unescaped as it is."""


@dataclass(frozen=True, slots=True, order=True)
class Location:
    """A place by its address; `/` goes down from it, as with paths. `path` begins with a slash.

    As text it is the path on this machine, or the URI in a store.
    """

    scheme: str
    authority: str
    path: str

    @classmethod
    def parse(cls, text: str | os.PathLike[str], *, setting: str = "location") -> Self:
        """What a path or a URI means; relative paths are taken from the working directory.

        Raises InvalidSetting, naming `setting`, for the URIs of what is not served, and for those
        with anything else in them than an address.
        """
        given = os.fspath(text)
        found = _SCHEME.match(given)
        if found is None:
            path = os.path.join(os.getcwd(), given) if given else given
            _check_text(path, setting)
            return cls(LOCAL, "", path)
        scheme = found[1].lower()
        if scheme == LOCAL:
            parts = urlsplit(given)
            if parts.netloc in _THIS_MACHINE and parts.path:
                return cls(LOCAL, "", unquote(parts.path))
        elif scheme in _SCHEMES:
            return cls._in_store(_SCHEMES[scheme], given, setting)
        raise InvalidSetting(
            setting, f"{setting} cannot be {_without_secrets(given)!r}: expected {_SERVED}."
        )

    @classmethod
    def _in_store(cls, store: str, given: str, setting: str) -> Self:
        authority, _, path = given.partition("://")[2].partition("/")
        shown = _without_secrets(given)
        if _AUTHORITY[store].fullmatch(authority) is None:
            if "@" in authority and store != "abfs":
                raise InvalidSetting(
                    setting,
                    f"{setting} cannot be {shown!r}: keys and users do not belong into a location. "
                    "They are taken from the environment, by the names that the store's own tools "
                    "know (docs/locations.md).",
                )
            raise InvalidSetting(
                setting,
                f"{setting} cannot be {shown!r}: behind {store}:// stands {_AUTHORITY_IS[store]}.",
            )
        path = re.sub("/+", "/", f"/{path}").rstrip("/") or "/"
        if _KEY.fullmatch(path) is None or {"..", "."} & set(path.split("/")):
            raise InvalidSetting(
                setting,
                f"{setting} cannot be {shown!r}: a name in a store may have letters, digits, "
                "spaces and !_.'()=:+,- and nothing else.",
            )
        return cls(store, authority, path)

    def __truediv__(self, name: str) -> Location:
        return replace(self, path=f"{self.path.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.path if self.is_local else f"{self.scheme}://{self.authority}{self.path}"

    def __fspath__(self) -> str:
        return str(self.local)

    @property
    def is_local(self) -> bool:
        """Whether it is in a file system of this machine."""
        return self.scheme == LOCAL

    @property
    def local(self) -> Path:
        """The path on this machine. Raises TypeError for a place in a store."""
        if not self.is_local:
            raise TypeError(f"{self} is no path of this machine.")
        return Path(self.path)

    @property
    def name(self) -> str:
        """The last part."""
        return self.path.rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Location:
        """What it lies in."""
        return replace(self, path=self.path.rstrip("/").rpartition("/")[0] or "/")

    @property
    def uri(self) -> str:
        """With its scheme, as table formats write it: readers take the path behind it as it is.

        It is escaped only where tables of earlier releases may lie, and new ones may not.
        """
        if not self.is_local:
            return str(self)
        return f"file://{quote(self.path) if _UNCLEAR.search(self.path) else self.path}"

    @property
    def spark(self) -> str:
        """For Spark, which takes what follows the scheme as it is, unescaped."""
        return f"file://{self.path}" if self.is_local else str(self)

    def check_clear(self) -> None:
        """Raises InvalidSetting for a path that readers of tables would take for another."""
        if self.is_local and _UNCLEAR.search(self.path):
            raise InvalidSetting(
                "location",
                f"location cannot be {self.path!r}: readers of tables take %, #, ? and line feeds "
                "in a path for something else. Choose a directory without them.",
            )

    def relative_to(self, directory: Location) -> str:
        """The rest of the path below a directory. Raises ValueError if it is not below it."""
        start = f"{directory.path.rstrip('/')}/"
        if (self.scheme, self.authority) != (directory.scheme, directory.authority) or (
            not self.path.startswith(start)
        ):
            raise ValueError(f"{self} is not below {directory}.")
        return self.path.removeprefix(start)


def _check_text(given: str, setting: str) -> None:
    """Formats of tables keep paths as UTF-8. Raises InvalidSetting, naming `setting`."""
    try:
        given.encode()
    except UnicodeEncodeError:
        raise InvalidSetting(
            setting, f"{setting} cannot be {given!r}: it is not UTF-8, as readers of tables expect."
        ) from None


def _without_secrets(text: str) -> str:
    """A URI for a sentence, without what may be a key in it."""
    return re.sub(r"//[^/]*@(?![a-z0-9]+\.dfs\.)", "//...@", text).partition("?")[0]
