"""S3Mock, an S3 server of Java's: another one than moto, with files on a disk."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from strandline.lakehouse.session_java import find_java
from tests.faults.processes import until

PATIENCE_S: Final = 120.0
_STARTED: Final = re.compile(r"Tomcat started on ports? .*?(\d+) \(http\)")
_ROOM: Final = "org.springframework.boot.web.embedded.tomcat"
_OPTIONS: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
_SETTINGS: Final = (
    "--server.port=0",  # of TLS, which nothing here speaks
    "--com.adobe.testing.s3mock.httpPort=0",
    "--spring.main.lazy-initialization=true",
    "--spring.main.banner-mode=off",
    "--logging.level.root=WARN",
    f"--logging.level.{_ROOM}=INFO",
)


class S3Mock:
    """A context manager; `url` is its address. `home` gets its log and its files."""

    def __init__(self, jar: Path, home: Path) -> None:
        self._jar = jar
        self._home = home
        self._log = home / "log"
        self._process: subprocess.Popen[bytes] | None = None
        self.url = ""

    def __enter__(self) -> Self:
        java = str(find_java().executable)
        place = f"-Djava.io.tmpdir={self._home}"
        with self._log.open("wb") as output:
            self._process = subprocess.Popen(
                [java, *_OPTIONS, place, "-jar", str(self._jar), *_SETTINGS],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self.url = until(self._address, "an S3Mock", seconds=PATIENCE_S)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(PATIENCE_S)

    def _address(self) -> str:
        assert self._process is not None
        text = self._log.read_text(errors="replace")
        assert self._process.poll() is None, text[-2000:]
        found = _STARTED.search(text)
        return "" if found is None else f"http://127.0.0.1:{found[1]}"
