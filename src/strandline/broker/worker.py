"""A thread that does one piece of work after the other, and is there from the start.

A pool of the standard library starts its thread with the first work. A process that may have no
more threads then fails in the middle of a write; here it fails to start.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from strandline.errors import StorageError


class Worker(ThreadPoolExecutor):
    """See the module. Raises `StorageError` if there is no thread to be had."""

    def __init__(self, name: str) -> None:
        super().__init__(1, thread_name_prefix=name)
        try:
            self.submit(int).result()
        except RuntimeError as error:
            self.shutdown(wait=False)
            raise StorageError(f"Cannot start the thread {name}: {error}.") from error
