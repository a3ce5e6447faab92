"""What leaves a broker for its clients: I-26 and I-47.

An answer to a fetch names ranges of log files. At the moment at which it is sent each of them must
consist of whole batches that match their checksums and lie below what the replica calls committed.
A follower's high watermark may have fallen since the answer was made; what is committed has not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from crc32c import crc32c

from strandline.node.effects import Chunk
from strandline.records.batch import ATTRIBUTES_AT, LOG_OVERHEAD
from strandline.sim.checkers.batches import header_fields, peek
from strandline.sim.checkers.log_model import LogModel
from strandline.sim.checkers.partition_model import PartitionModel
from strandline.sim.checkers.scope import Scope
from strandline.sim.checkers.violations import Findings
from strandline.storage.log_reader import LogSlice


class ServingRules:
    """See the module."""

    def __init__(self, findings: Findings, scope: Scope) -> None:
        self._findings = findings
        self._scope = scope

    def check_sent(
        self,
        chunks: Sequence[Chunk],
        models: Mapping[str, tuple[LogModel, PartitionModel]],
    ) -> None:
        """A client is sent these; `models` are the sender's logs by their directories."""
        for chunk in chunks:
            if isinstance(chunk, LogSlice):
                found = models.get(chunk.file.path.rpartition("/")[0])
                if found is not None:
                    self._check_slice(chunk, *found)

    def _check_slice(self, chunk: LogSlice, model: LogModel, partition: PartitionModel) -> None:
        log = model.log
        limit: int = log.high_watermark
        if model.replica is None or not model.replica.is_leading:
            if self._scope.may_lose:
                return
            limit = max(limit, partition.committed_end)
        data, position = peek(chunk.file, chunk.position, chunk.length), 0
        while position < len(data):
            fields = header_fields(data, position)
            if fields is None:
                break  # cut since, or the answer ends inside a batch as it may
            size = fields[1] + LOG_OVERHEAD
            if fields[0] + fields[6] >= limit:
                self._findings.add(
                    "I-26",
                    f"{model} sends a client the batch {fields[0]}-{fields[0] + fields[6]}, but "
                    f"its high watermark is {log.high_watermark}",
                    model.at,
                )
                return
            crc = crc32c(memoryview(data)[position + ATTRIBUTES_AT : position + size])
            if crc != fields[4]:
                self._findings.add(
                    "I-47",
                    f"{model} sends a client the batch at {fields[0]}, which does not match its "
                    f"checksum",
                    model.at,
                )
                return
            position += size
        self._findings.counters["answers with records"] += 1
