"""The demo's S3 server: moto's, in memory, on a port of loopback that was free.

`python -m strandline.lakehouse.demo.s3_server BUCKET` makes the bucket, prints its address, and
ends with its standard input. It runs in a process of its own, since some libraries hold Python's
lock while they wait for it. This file must not know tables.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from threading import Thread
from typing import Any, Final

MODULE: Final = "strandline.lakehouse.demo.s3_server"
_NEEDED: Final = ("moto", "flask", "flask_cors")


def missing_packages() -> list[str]:
    """Packages that the server needs, and that are not installed."""
    return [name for name in _NEEDED if find_spec(name) is None]


def main() -> None:
    """Serve until standard input ends."""
    from urllib.request import ProxyHandler, Request, build_opener

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Quiet(WSGIRequestHandler):
        def log(self, type: str, message: str, *args: Any) -> None:  # noqa: A002 -- its name there
            """Nothing: a line per request would bury what the demo says."""

    app = DomainDispatcherApplication(create_backend_app)
    server = make_server("127.0.0.1", 0, app, threaded=True, request_handler=Quiet)
    Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    for bucket in sys.argv[1:]:
        request = Request(f"{url}/{bucket}", method="PUT")  # noqa: S310 -- to this very process
        build_opener(ProxyHandler({})).open(request)
    print(url, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
