"""S3Mock, an S3 server of Java's: another one than moto, with files on a disk."""

from __future__ import annotations

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from tests.lakehouse.java_server import java_server

_STARTED: Final = re.compile(r"Tomcat started on ports? .*?(\d+) \(http\)")
_ROOM: Final = "org.springframework.boot.web.embedded.tomcat"
_SETTINGS: Final = (
    "--server.port=0",  # of TLS, which nothing here speaks
    "--com.adobe.testing.s3mock.httpPort=0",
    "--spring.main.lazy-initialization=true",
    "--spring.main.banner-mode=off",
    "--logging.level.root=WARN",
    f"--logging.level.{_ROOM}=INFO",
)


def s3mock(jar: Path, home: Path) -> AbstractContextManager[str]:
    """The address of a server. `home` gets its log and its files."""
    log = home / "log"

    def address() -> str:
        found = _STARTED.search(log.read_text(errors="replace"))
        return "" if found is None else f"http://127.0.0.1:{found[1]}"

    arguments = [f"-Djava.io.tmpdir={home}", "-jar", str(jar), *_SETTINGS]
    return java_server("an S3Mock", arguments, log, address)
