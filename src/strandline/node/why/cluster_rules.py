"""Rules about the cluster: its controller, its brokers, elections that are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.errors import ErrorCode
from strandline.node.authentication.certificate_time import untimely
from strandline.node.status.history import Kind
from strandline.node.why.rule import Finding, Rule, Scope
from strandline.node.why.scene import Scene, refusal_evidence


def no_controller(scene: Scene) -> Iterator[Finding]:
    """The cluster has no controller."""
    controller = scene.image.controller
    if controller is None or not scene.image.is_alive(controller):
        last = scene.node.telemetry.history.last(Kind.CONTROLLER)
        yield Finding(
            "the cluster",
            "no broker is the controller"
            if controller is None
            else f"the controller, broker {controller}, is not registered",
            None if last is None else last.wall_ms,
            () if last is None else (last.reason,),
        )
    is_here = scene.node.controller_loop.is_controller
    for refusal in scene.refusals(ErrorCode.NOT_CONTROLLER):
        yield Finding(
            str(refusal.about),
            f"broker {scene.node.broker_id} is the controller now"
            if is_here
            else "this broker is not the controller"
            + ("" if controller is None else f"; broker {controller} is"),
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
            is_over=is_here,
        )


def not_registered(scene: Scene) -> Iterator[Finding]:
    """This very broker is not a member of its cluster."""
    membership = scene.node.membership
    if membership.is_registered:
        return
    is_fenced = membership.is_fenced
    yield Finding(
        f"broker {scene.node.broker_id}",
        "another process is registered under its id"
        if is_fenced
        else "its session has ended, and it has not registered again",
        None,
        (f"its last broker epoch was {membership.broker_epoch}",),
        "Give every broker an id of its own." if is_fenced else None,
    )


def election_refused(scene: Scene) -> Iterator[Finding]:
    """Elections that a client requested and the controller refused."""
    for refusal in scene.refusals(*ELECTION_REFUSED.codes):
        at = refusal.about.topic_partition
        state = None if at is None else scene.image.partition(at)
        leads = state is not None and state.leader == state.replicas[0]
        facts = () if state is None else (
            f"leader {state.leader}, preferred {state.replicas[0]}, in sync "
            f"{list(state.in_sync_replicas)}",
        )  # fmt: skip
        yield Finding(
            str(refusal.about),
            refusal.message or "the election was refused",
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now) + facts,
            is_over=leads and refusal.code is ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        )


def change_refused(scene: Scene) -> Iterator[Finding]:
    """Changes of in-sync sets that the controller refused."""
    for refusal in scene.refusals(*CHANGE_REFUSED.codes):
        yield Finding(
            str(refusal.about),
            refusal.message or "the broker that asked has been registered anew since",
            refusal.first.wall_ms,
            refusal_evidence(refusal, scene.now),
        )


def certificate_expires(scene: Scene) -> Iterator[Finding]:
    """Certificates of this broker that clients refuse, or will soon."""
    certificates = scene.node.certificates
    for each in [] if certificates is None else certificates():
        wrong = untimely(each, scene.now.wall_ms)
        if wrong is None:
            continue
        yield Finding(
            f"listener {each.listener} of broker {scene.node.broker_id}",
            f"its certificate ({each.kept_in}) {wrong.sentence}",
            wrong.since_wall_ms,
            (f"it is that of {each.subject or 'nothing that has a name'}",),
        )


ELECTION_REFUSED: Final = Rule(
    "election-refused",
    "An election that was asked for is refused",
    Scope.PARTITION,
    (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, ErrorCode.ELECTION_NOT_NEEDED),
    "The preferred leader is not in sync or not alive, or it leads already; an unclean election is "
    "only for partitions without a leader.",
    "Wait until the preferred leader is in sync again.",
    ("auto.leader.rebalance.enable", "leader.imbalance.per.broker.percentage"),
    election_refused,
)
CHANGE_REFUSED: Final = Rule(
    "change-refused",
    "The controller refuses a change of an in-sync set",
    Scope.CLUSTER,
    (
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.INELIGIBLE_REPLICA,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.OPERATION_NOT_ATTEMPTED,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
    ),
    "A leader proposed a set from older metadata than the controller's, or with a replica whose "
    "broker is gone, is about to stop, or has registered anew since it fetched (KIP-903).",
    "Nothing: the leader proposes again from newer metadata.",
    (),
    change_refused,
)
RULES: Final = (
    Rule(
        "no-controller",
        "There is no controller, or a broker is asked that is not the controller",
        Scope.CLUSTER,
        (ErrorCode.NOT_CONTROLLER,),
        "The controller elects leaders and decides about in-sync sets, topics and settings. When "
        "its session ends, another broker becomes the controller.",
        "It ends when the session of the former controller has run out. Clients find the new one "
        "by themselves.",
        ("zookeeper.session.timeout.ms",),
        no_controller,
    ),
    Rule(
        "not-registered",
        "A broker is not a member of its cluster",
        Scope.CLUSTER,
        (),
        "Its session with the metadata store ended: it was paused, cut off, or its id is taken by "
        "another process. Until it registers again it leads nothing new and may not be in sync.",
        "Let it reach the metadata store again.",
        ("zookeeper.session.timeout.ms", "node.id"),
        not_registered,
    ),
    ELECTION_REFUSED,
    CHANGE_REFUSED,
    Rule(
        "certificate-expires",
        "The certificate of a listener has expired, does within 30 days, or does not count yet",
        Scope.CLUSTER,
        (),
        "Clients, and brokers among themselves, refuse a certificate whose time is over or has not "
        "come. Links and connections that are open stay.",
        "Put a new certificate into the file that is named; it is read again without a restart. A "
        "certificate in the settings themselves changes at a restart.",
        ("ssl.keystore.location", "ssl.keystore.certificate.chain"),
        certificate_expires,
    ),
)
