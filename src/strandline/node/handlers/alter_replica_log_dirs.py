"""AlterReplicaLogDirs: have replicas of this broker moved between its log directories (KIP-113)."""

from __future__ import annotations

from os.path import abspath

from strandline.errors import ErrorCode, ProtocolError, StorageError
from strandline.node.log_dirs_messages import places_answer, wanted_places
from strandline.node.log_moves import LogMoves
from strandline.node.logs import Directory
from strandline.node.replicas import Replicas
from strandline.node.request import Request
from strandline.protocol.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from strandline.storage.directory_names import NAME_BYTES_MAX, future_directory_name
from strandline.types import Instant, TopicPartition


class AlterReplicaLogDirsHandler:
    """Answers AlterReplicaLogDirs, versions 1 and 2: moves go on after the answer."""

    def __init__(self, replicas: Replicas, moves: LogMoves) -> None:
        self._replicas = replicas
        self._logs = replicas.logs
        self._moves = moves

    def handle(self, request: Request[AlterReplicaLogDirsRequest], now: Instant) -> None:
        """Begin the moves, or tell why not."""
        codes: dict[TopicPartition, ErrorCode] = {}
        for partition, path in wanted_places(request.body).items():
            codes[partition] = ErrorCode.NONE
            try:
                self._move(partition, path, now)
            except ProtocolError as error:
                codes[partition] = error.code
            except StorageError:
                codes[partition] = ErrorCode.KAFKA_STORAGE_ERROR
        request.reply(places_answer(codes))

    def _move(self, partition: TopicPartition, path: str, now: Instant) -> None:
        """Kafka's checks in Kafka's order. Raises `ProtocolError` and `StorageError`."""
        if len(future_directory_name(partition, "0" * 32).encode()) > NAME_BYTES_MAX:
            raise ProtocolError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, "The name of the topic is too long to be moved."
            )
        directory = self._directory(path)
        move = self._moves.find(partition)
        if move is not None and move.directory is not directory:
            self._moves.cancel(partition, now)
            move = None
        if self._replicas.why_unavailable(partition) is None and not (
            partition in directory.logs or partition in directory.futures
        ):
            self._logs.preferred[partition] = directory
        try:
            replica = self._replicas.hosted(partition.topic, partition.partition)
        except ProtocolError as error:
            if error.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:
                raise
            # As Kafka says it, for tools that send this before the replica is made.
            raise ProtocolError(ErrorCode.REPLICA_NOT_AVAILABLE) from error
        self._logs.preferred.pop(partition, None)
        if move is None and partition not in directory.logs:
            self._moves.begin(replica, directory, now)

    def _directory(self, path: str) -> Directory:
        for directory in self._logs.directories:
            if path in (directory.path, abspath(directory.path)):
                if directory.offline_reason is not None:
                    raise ProtocolError(ErrorCode.KAFKA_STORAGE_ERROR, f"{path} is offline.")
                return directory
        raise ProtocolError(
            ErrorCode.LOG_DIR_NOT_FOUND, f"This broker has no log directory {path}."
        )
