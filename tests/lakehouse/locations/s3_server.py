"""An S3 server in a process of its own, that can be told to misbehave as stores do.

It is moto's, or one at another address (`s3mock`), to which it passes all requests on. In a process
of its own, since some calls of the libraries under test hold Python's lock while they wait for it.
`python -m tests.lakehouse.locations.s3_server [URL]` is that process.
"""

from __future__ import annotations

import http.client
import json
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.parse import urlsplit

import boto3
from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import ThreadedWSGIServer, WSGIRequestHandler, make_server

_CONTROL: Final = "/--control--"
_ROOT: Final = Path(__file__).parents[3]
KEYS: Final = {
    "AWS_ACCESS_KEY_ID": "key-of-the-environment",
    "AWS_SECRET_ACCESS_KEY": "very-secret-word",
    "AWS_EC2_METADATA_DISABLED": "true",
}
_OF_A_CONNECTION: Final = ("connection", "content-length", "keep-alive", "transfer-encoding")
_CODES: Final = {403: "AccessDenied", 503: "SlowDown"}


@dataclass(frozen=True, slots=True)
class Fault:
    """What becomes of the next `times` requests with this method and path (patterns); -1: of all.

    With `status` a request is answered so and not carried out. With `lose` it is carried out, and
    its connection closed. With `deaf` conditions of writes are ignored.
    """

    method: str
    path: str
    times: int = 1
    status: int | None = None
    lose: bool = False
    deaf: bool = False
    delay_s: float = 0.0


class S3Server:
    """A context manager; `url` is its address. `behind` is that of the server that answers."""

    def __init__(self, behind: str = "") -> None:
        self.url = ""
        self._behind = behind
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.lakehouse.locations.s3_server", self._behind],
            stdout=subprocess.PIPE,
            stdin=subprocess.PIPE,
            text=True,
            cwd=_ROOT,
        )
        assert self._process.stdout is not None
        self.url = self._process.stdout.readline().strip()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._process is not None:
            self._process.communicate()  # it ends with its input
            assert self._process.returncode == 0

    @property
    def environment(self) -> dict[str, str]:
        """What a process needs to use it."""
        return {
            "AWS_ENDPOINT_URL": self.url,
            "AWS_REGION": "us-east-1",
            **KEYS,
        }

    def bucket(self, name: str) -> str:
        """Make a bucket; its name."""
        self.client().create_bucket(Bucket=name)
        return name

    def client(self, service: str = "s3") -> Any:
        """A client of Amazon's own making."""
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name="us-east-1",
            aws_access_key_id="tests",
            aws_secret_access_key="tests",
        )

    def keys(self, bucket: str) -> list[str]:
        """The names of all objects in a bucket."""
        found = self.client().list_objects_v2(Bucket=bucket, MaxKeys=1000)
        return [each["Key"] for each in found.get("Contents", [])]

    def plant(self, *faults: Fault) -> None:
        """Put these faults in the place of those before."""
        self._control([asdict(each) for each in faults])

    def left(self) -> list[int]:
        """How often each planted fault has still to happen."""
        return [each["times"] for each in self._control(None)["faults"]]

    def keys_used(self) -> set[str]:
        """The names of the keys that requests were signed with since the last `plant`."""
        return set(self._control(None)["keys"])

    def _control(self, faults: list[dict[str, Any]] | None) -> Any:
        request = urllib.request.Request(self.url + _CONTROL, json.dumps(faults).encode())
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


class _Misbehaving:
    """The server's application, behind the faults."""

    def __init__(self, app: Callable[..., Iterable[bytes]]) -> None:
        self._app = app
        self._faults: list[dict[str, Any]] = []
        self._keys: set[str] = set()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
        if path == _CONTROL:
            return self._control(environ, start)
        signed = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2]
        self._keys.add(signed.partition("/")[0])
        for fault in self._faults:
            if (
                fault["times"]
                and re.fullmatch(fault["method"], method)
                and re.search(fault["path"], path)
            ):
                fault["times"] -= 1
                return self._misbehave(fault, environ, start)
        return self._app(environ, start)

    def _misbehave(
        self, fault: dict[str, Any], environ: dict[str, Any], start: Callable[..., Any]
    ) -> Iterable[bytes]:
        time.sleep(fault["delay_s"])
        if fault["status"] is not None:
            start(f"{fault['status']} planted", [("Content-Type", "application/xml")])
            code = _CODES.get(fault["status"], "InternalError")
            return [f"<Error><Code>{code}</Code><Message>planted</Message></Error>".encode()]
        if fault["deaf"]:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        answer = self._app(environ, start)
        if not fault["lose"]:
            return answer
        list(answer)
        environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
        return []

    def _control(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        faults = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        if faults is not None:
            self._faults = faults
            self._keys.clear()
        start("200 OK", [("Content-Type", "application/json")])
        return [json.dumps({"faults": self._faults, "keys": sorted(self._keys)}).encode()]


class _Moto:
    """Moto's application, which sees whether there is a file and makes it in two steps. So that it
    is as Amazon's, requests with a condition come one after another."""

    def __init__(self) -> None:
        self._app = DomainDispatcherApplication(create_backend_app)
        self._condition = threading.Lock()

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        if "HTTP_IF_NONE_MATCH" not in environ:
            answer: Iterable[bytes] = self._app(environ, start)
            return answer
        with self._condition:
            return list(self._app(environ, start))


class _Elsewhere:
    """A server at another address."""

    def __init__(self, url: str) -> None:
        self._host = urlsplit(url).netloc

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        sent = {
            name.removeprefix("HTTP_").replace("_", "-"): value
            for name, value in environ.items()
            if name.startswith("HTTP_") and name != "HTTP_TRANSFER_ENCODING"
        }
        if environ.get("CONTENT_TYPE"):
            sent["Content-Type"] = environ["CONTENT_TYPE"]
        is_chunked = environ.get("wsgi.input_terminated")
        length = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
        path = environ.get("RAW_URI") or environ["REQUEST_URI"]
        there = http.client.HTTPConnection(self._host)
        try:
            body = environ["wsgi.input"].read(length)
            there.request(environ["REQUEST_METHOD"], path, body, sent)
            answer = there.getresponse()
            content = answer.read()
        finally:
            there.close()
        told = [each for each in answer.getheaders() if each[0].lower() not in _OF_A_CONNECTION]
        size = answer.getheader("Content-Length") or str(len(content))
        start(f"{answer.status} {answer.reason}", [*told, ("Content-Length", size)])
        return [content]


class _Quiet(WSGIRequestHandler):
    def log(self, *_: Any) -> None:
        """Nothing."""


def _main() -> None:
    behind = sys.argv[1]
    app = _Misbehaving(_Elsewhere(behind) if behind else _Moto())
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=_Quiet)
    assert isinstance(server, ThreadedWSGIServer)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    _main()
