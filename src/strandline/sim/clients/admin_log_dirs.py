"""Moving a replica to another log directory of its broker."""

from __future__ import annotations

from typing import Any

from strandline.errors import ErrorCode
from strandline.protocol.apis import ApiKey
from strandline.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from strandline.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from strandline.sim.clients.admin import (
    AdminOperation,
    Request,
    Script,
    brokers_named,
    partition_named,
    verdict,
)
from strandline.types import BrokerId


class MoveLog(AdminOperation):
    """`move-log t-0 BROKER dir=N`: to the N-th directory of the broker after the one that the
    replica lies in, or, if it moves already, to that of its log, which calls the move off."""

    def script(self) -> Script:
        """See `AdminOperation`."""
        at = partition_named(self.action.word(0))
        (number,) = brokers_named(self.action.word(1))
        broker_id = BrokerId(number)
        looked = yield Request(
            ApiKey.DESCRIBE_LOG_DIRS,
            DescribeLogDirsRequest(topics=None),
            _nothing_wrong,
            at=broker_id,
        )
        paths = [each.log_dir for each in looked.results]
        here = [
            paths.index(each.log_dir)
            for each in looked.results
            for topic in each.topics
            for found in topic.partitions
            if (topic.name, found.partition_index) == at and not found.is_future_key
        ]
        path = paths[(sum(here) + self.action.number("dir", 1)) % len(paths)]
        named = AlterReplicaLogDirTopic(name=at.topic, partitions=[at.partition])
        answer = yield Request(
            ApiKey.ALTER_REPLICA_LOG_DIRS,
            AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=[named])]),
            _first,
            at=broker_id,
        )
        return verdict(_first(answer))


def _nothing_wrong(_: Any) -> int:
    return ErrorCode.NONE


def _first(answer: Any) -> int:
    """The error of the only partition. A disk that has failed stays so until the next start."""
    code: int = answer.results[0].partitions[0].error_code
    return code
