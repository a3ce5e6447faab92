"""What a page can ask the cluster beyond the picture: records, topics, groups,
transactions, why, the ledger.

Each question is a function of a client and of the values in the request's address; it returns what
becomes JSON. Raises `BadQuestion` for values that make no sense, `ProtocolError` for what a broker
refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from strandline.client.admin_configs import ConfigAdmin, Resource
from strandline.client.admin_groups import SHARE, GroupAdmin, GroupListing
from strandline.client.admin_share_groups import ShareGroupAdmin
from strandline.client.admin_transactions import TransactionAdmin
from strandline.client.cluster import ClusterClient
from strandline.client.fetching import Isolation
from strandline.client.inspection import answers_of, inspect_each
from strandline.client.start import Start
from strandline.config.broker import BrokerConfig
from strandline.config.describe import describe_topic
from strandline.errors import ProtocolError, StrandlineError
from strandline.node.status.metrics import merged
from strandline.numerals import INT64_MAX, whole_number
from strandline.schemas.sources import Schemas
from strandline.types import Offset, TopicPartition
from strandline.ui.decoding import Decoder, Form, Json
from strandline.ui.picture import Key
from strandline.ui.records import RECORDS_MAX, Wanted, browse

Values = Mapping[str, str]

LAGS_MAX: Final = 50
_OPEN: Final = ("Ongoing", "PrepareCommit", "PrepareAbort")


class BadQuestion(StrandlineError):
    """A value in the address that makes no sense; the sentence names it."""


def records(cluster: ClusterClient, values: Values, schemas: Schemas) -> Json:
    """`at`: earliest, latest, an offset or `time:MILLISECONDS`; `limit`, `key`, `committed`,
    `contains`: what the value, as it is shown, has in it.

    `keys` and `values` say how these are to be decoded: auto, json, text, bytes or avro.
    """
    isolation = Isolation.READ_COMMITTED if _flag(values, "committed") else None
    topic = _text(values, "topic")
    return browse(
        cluster,
        Wanted(
            TopicPartition(topic, number(values, "partition")),
            _start(values.get("at", "latest"), number(values, "limit", 50)),
            max(1, min(number(values, "limit", 50), RECORDS_MAX)),
            values.get("key") or None,
            values.get("contains") or None,
            isolation or Isolation.READ_UNCOMMITTED,
        ),
        Decoder(_form(values, "keys"), schemas, topic, "key"),
        Decoder(_form(values, "values"), schemas, topic, "value"),
    )


def settings(cluster: ClusterClient, values: Values) -> Json:
    """The settings of a topic, with where each comes from and what it is by default, that is, where
    neither the topic nor the brokers say otherwise."""
    shipped = {each.name: each.value for each in describe_topic({}, BrokerConfig())}
    entries = ConfigAdmin(cluster).describe(Resource.topic(_text(values, "topic")))
    return {
        "settings": [
            {
                "name": entry.name,
                "value": entry.value,
                "source": entry.source.name.lower(),
                "default": shipped.get(entry.name),
                "about": entry.documentation,
            }
            for entry in entries
        ]
    }


def partition(cluster: ClusterClient, values: Values) -> Json:
    """Everything that every broker knows of one partition."""
    topics = [_text(values, "topic")]
    return _of_each(cluster, "status", topics=topics, partition=number(values, "partition"))


def groups(cluster: ClusterClient, values: Values) -> Json:
    """All groups of each type with state and lag. A row of a partition has where the group goes on,
    the log's end, which share groups do not tell, and the lag."""
    del values
    found = []
    for listing in GroupAdmin(cluster).list_all():
        rows = _share_rows(cluster, listing) if _is_share(listing) else _rows(cluster, listing)
        known = [lag for *_, lag in rows if lag is not None]
        found.append(
            {
                "group": listing.group,
                "type": listing.group_type,
                "state": listing.state,
                "lag": sum(known) if known else None,
                "partitions": rows,
            }
        )
    return {"groups": found}


def _is_share(listing: GroupListing) -> bool:
    return listing.group_type == SHARE


def _rows(cluster: ClusterClient, listing: GroupListing) -> list[list[Any]]:
    return [
        [*each.partition, each.committed and each.committed.offset, each.end, each.lag]
        for each in GroupAdmin(cluster).lag(listing.group)
    ]


def _share_rows(cluster: ClusterClient, listing: GroupListing) -> list[list[Any]]:
    offsets = ShareGroupAdmin(cluster).offsets(listing.group)
    return [[*at, each.start, None, each.lag] for at, each in offsets.items()]


def lags(cluster: ClusterClient, values: Values, ends: Mapping[Key, int | None]) -> dict[str, int]:
    """How many records each group has still to read, by the first `LAGS_MAX` groups. `ends` are
    the high watermarks that were seen last: nothing is asked but where groups are. A group that is
    in a partition whose end is not known (None) is left out."""
    del values
    listings = GroupAdmin(cluster).list_all()[:LAGS_MAX]
    found = {each.group: _lag(cluster, each, ends) for each in listings}
    return {group: lag for group, lag in found.items() if lag is not None}


def _lag(
    cluster: ClusterClient, listing: GroupListing, ends: Mapping[Key, int | None]
) -> int | None:
    if _is_share(listing):
        offsets = ShareGroupAdmin(cluster).offsets(listing.group)
        known = [each.lag for each in offsets.values() if each.lag is not None]
        return sum(known) if known or not offsets else None
    total = 0
    for at, stored in GroupAdmin(cluster).offsets(listing.group).items():
        end = ends.get(at, stored.offset)
        if end is None:
            return None
        total += max(0, end - stored.offset)
    return total


def transactions(cluster: ClusterClient, values: Values) -> Json:
    """Transactions that are open, and partitions in which readers of committed records wait for
    one; `producer` is null where its end is only not replicated yet."""
    del values
    admin = TransactionAdmin(cluster)
    described = admin.describe_listed(admin.list_all(states=_OPEN))
    waiting = _waiting(cluster)
    holders = {
        (each.partition, each.transaction_start): each.producer_id
        for each in admin.producers(waiting)
    }
    return {
        "transactions": [
            {
                "transactional_id": each.transactional_id,
                "state": each.state,
                "since_wall_ms": each.started_ms,
                "timeout_ms": each.timeout_ms,
                "producer": each.producer_id,
                "epoch": each.producer_epoch,
                "coordinator": each.coordinator,
                "partitions": [list(at) for at in each.partitions],
            }
            for each in described
        ],
        "waiting": [
            [*at, stable, high, holders.get((at, stable))]
            for at, (stable, high) in sorted(waiting.items())
        ],
    }


def _waiting(cluster: ClusterClient) -> dict[TopicPartition, tuple[Offset, Offset]]:
    """The last stable offset and the high watermark where they differ, as leaders say."""
    found: dict[TopicPartition, tuple[Offset, Offset]] = {}
    for broker, document in answers_of(inspect_each(cluster, "picture")).items():
        for row in document["rows"]:
            each = dict(zip(document["columns"], row, strict=True))
            stable, high = each["last_stable_offset"], each["high_watermark"]
            if each["leader"] == broker and high is not None and stable < high:
                found[TopicPartition(each["topic"], each["partition"])] = (stable, high)
    return found


def why(cluster: ClusterClient, values: Values) -> Json:
    """What each broker has to say about a partition, or about everything."""
    wanted: dict[str, object] = {}
    if "topic" in values:
        wanted["topic"] = values["topic"]
    if "partition" in values:
        wanted["partition"] = number(values, "partition")
    return _of_each(cluster, "why", **wanted)


def ledger(cluster: ClusterClient, values: Values) -> Json:
    """What was cut off from logs, by broker."""
    del values
    return _of_each(cluster, "ledger")


def _of_each(cluster: ClusterClient, subject: str, **arguments: object) -> Json:
    """What every broker says of a subject, or why it says nothing."""
    return {
        "brokers": {
            str(broker): {"error": answer.sentence} if isinstance(answer, ProtocolError) else answer
            for broker, answer in inspect_each(cluster, subject, **arguments).items()
        }
    }


def metrics(cluster: ClusterClient, values: Values) -> str:
    """The text that Prometheus reads, of all brokers that answer."""
    del values
    return merged(answers_of(inspect_each(cluster, "status", brief=True)).values())


Question: TypeAlias = Callable[[ClusterClient, Values], Json]


POLLED: Final[tuple[Question, ...]] = (partition, groups, transactions, why, ledger)
"""What open pages ask again and again."""


def by_path(schemas: Schemas) -> Mapping[str, Question]:
    """All questions by the paths at which they are asked; `schemas` are for the records."""
    return {
        "/api/topics/{topic}/settings": settings,
        "/api/topics/{topic}/{partition:int}": partition,
        "/api/topics/{topic}/{partition:int}/records": partial(records, schemas=schemas),
        "/api/groups": groups,
        "/api/transactions": transactions,
        "/api/why": why,
        "/api/ledger": ledger,
    }


# -- Values ------------------------------------------------------------------------------------


def _text(values: Values, name: str) -> str:
    found = str(values.get(name, ""))
    if not found:
        raise BadQuestion(f"'{name}' is missing.")
    return found


def number(values: Values, name: str, default: int | None = None) -> int:
    """A whole number from 0 on. Raises `BadQuestion`."""
    text = str(values.get(name, ""))
    if not text and default is not None:
        return default
    found = whole_number(text, INT64_MAX)
    if found is None:
        raise BadQuestion(f"'{name}' is a whole number, not '{text}'.")
    return found


def _form(values: Values, name: str) -> Form:
    found = values.get(name, Form.AUTO)
    if found not in tuple(Form):
        raise BadQuestion(f"'{name}' is one of {', '.join(Form)}, not '{found}'.")
    return Form(found)


def _flag(values: Values, name: str) -> bool:
    return values.get(name, "") in ("1", "true", "yes")


def _start(text: str, limit: int) -> Start:
    if text == "earliest":
        return Start.earliest()
    if text == "latest":
        return Start.latest(limit)
    kind, colon, rest = text.partition(":")
    if kind == "time" and colon:
        return Start.at_time(number({"at": rest}, "at"))
    return Start.at_offset(number({"at": text}, "at"))
