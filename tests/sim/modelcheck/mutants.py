"""The search without a rule, for each rule in turn: some invariant must break.

This proves that the search would notice, and that the rule is needed: the shortest way to the
violation is the reason why the rule exists. Rules inside of the real code are patched from outside
and put back; those between its parts, which this package repeats, have a switch in `Rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final

from strandline.cluster.controller.in_sync_proposals import _Judge
from strandline.cluster.controller.standings import Brokers, Standing
from strandline.errors import StrandlineError
from strandline.replication.in_sync import Shrinking
from strandline.replication.leader import Leader
from strandline.replication.policies import Policies, TruncateBy
from strandline.replication.progress import Progress
from strandline.types import BrokerId, Offset
from tests.sim.modelcheck import following
from tests.sim.modelcheck.rules import Bounds, ChosenLag, Rules
from tests.sim.modelcheck.search import Search, Searched, Told
from tests.sim.mutants.mutant import patch

_QUIET: Final = Bounds(records=2, epochs=3, crashes=0, losses=0, expiries=0)
"""No process dies: leadership moves because the controller is asked to move it."""
_FAILING: Final = Bounds(records=2, epochs=2, crashes=1, losses=1, expiries=0)
"""A machine dies and may forget."""


_PAIR: Final = Bounds(
    replicas=2, records=1, epochs=1, crashes=0, losses=0, expiries=0, delayed=1, min_in_sync=1
)
"""A leader that may go on alone, its follower, and requests that are late."""


_TWO: Final = Bounds(
    replicas=2, records=2, epochs=3, crashes=0, losses=0, expiries=0, min_in_sync=1
)
"""Two replicas that take turns in leading."""


def _as_it_is(rules: Rules) -> Rules:
    return rules


@dataclass(frozen=True, slots=True)
class SmallMutant:
    """A rule of the core, how to do without it, and in how small a world that shows."""

    name: str
    sentence: str
    """The rule, with its source."""
    bounds: Bounds
    change: Callable[[Rules], Rules] = _as_it_is
    switch_on: Callable[[], AbstractContextManager[None]] = field(default=nullcontext)


class UnknownRule(StrandlineError):
    """No rule of the core has this name."""


def exhaust(
    *,
    bounds: Bounds,
    without: str | None = None,
    states_max: int | None = None,
    told: Told | None = None,
) -> Searched:
    """Search all states within the bounds, perhaps without one rule (see `RULES`)."""
    lag = ChosenLag()
    rules = Rules(policies=Policies(lag=lag))
    if without is None:
        return Search(bounds, rules, lag).run(states_max=states_max, told=told)
    mutant = _MUTANTS.get(without)
    if mutant is None:
        raise UnknownRule(
            f"There is no rule {without!r}. There are: {', '.join(sorted(_MUTANTS))}."
        )
    with mutant.switch_on():
        search = Search(bounds, mutant.change(rules), lag)
        return search.run(states_max=states_max, told=told)


@dataclass(frozen=True, slots=True)
class Caught:
    """What the search says without one rule."""

    name: str
    sentence: str
    bounds: Bounds
    searched: Searched

    @property
    def invariants(self) -> tuple[str, ...]:
        """Those that broke; empty if the rule's absence was not noticed."""
        return tuple(dict.fromkeys(broken.invariant for broken in self.searched.broken))


def catch_all(
    names: tuple[str, ...] | None = None, *, states_max: int | None = None
) -> Iterator[Caught]:
    """The table of all rules, or of some: each searched in the world that is said to be enough."""
    for name in _MUTANTS if names is None else names:
        mutant = _MUTANTS[name]
        searched = exhaust(bounds=mutant.bounds, without=name, states_max=states_max)
        yield Caught(name, mutant.sentence, mutant.bounds, searched)


def table(caught: Iterator[Caught]) -> str:
    """The results as a table in Markdown."""
    lines = [
        "| rule switched off | invariant | steps | states searched |",
        "|---|---|---|---|",
    ]
    for each in caught:
        found = ", ".join(each.invariants) or "none"
        steps = len(each.searched.path) if each.searched.path else "-"
        lines.append(
            f"| `{each.name}`: {each.sentence} | {found} | {steps} | {each.searched.states:,} |"
        )
    return "\n".join(lines) + "\n"


def _policy(**changes: Any) -> Callable[[Rules], Rules]:
    return lambda rules: replace(rules, policies=replace(rules.policies, **changes))


def _rule(**changes: Any) -> Callable[[Rules], Rules]:
    return lambda rules: replace(rules, **changes)


# -- Patches ---------------------------------------------------------------------------------

_true_high_watermark = Leader.next_high_watermark
_true_begin_epoch = Progress.begin_epoch
_true_committed = Leader.committed
_true_standing = Brokers.standing


def _may_go_back(self: Leader, high_watermark: Offset, *args: Any, **more: Any) -> Offset:
    del high_watermark
    return _true_high_watermark(self, Offset(0), *args, **more)


def _begin_known(
    self: Progress, former: Progress | None, start_offset: Offset, now_ms: int
) -> None:
    _true_begin_epoch(self, former, start_offset, now_ms)
    if former is None:
        self.log_end_offset = start_offset


def _committed_again(
    self: Leader, members: Any, partition_epoch: int, has_eligible: bool | None = None
) -> bool:
    self.partition_epoch -= 1
    return _true_committed(self, members, partition_epoch, has_eligible)


def _shrunken_at_once(self: Shrinking) -> frozenset[BrokerId]:
    return self.members - self.leaving


def _no_check(self: object, *args: object) -> None:
    del self, args


def _unclamped(leader_mark: Offset, log_start: Offset, log_end: Offset) -> Offset:
    del log_start, log_end
    return leader_mark


def _unclean_is(standing: Standing) -> Callable[[Brokers, BrokerId, int | None], Standing]:
    def judged(self: Brokers, broker: BrokerId, recorded: int | None) -> Standing:
        found = _true_standing(self, broker, recorded)
        return standing if found is Standing.UNCLEAN else found

    return judged


_ALL: Final = (
    SmallMutant(
        "truncate-by-leader-epoch",
        "a follower truncates where the logs part, not to its high watermark (KIP-101)",
        Bounds(records=1, epochs=3, crashes=0, losses=0, expiries=0),
        _policy(truncate_by=TruncateBy.HIGH_WATERMARK),
    ),
    SmallMutant(
        "ask-until-the-logs-agree",
        "a follower that lacks the leader's epoch asks again (KIP-279)",
        _TWO,
        _policy(truncate_by=TruncateBy.LEADER_EPOCH_ONCE),
    ),
    SmallMutant(
        "compare-logs",
        "a leader says where the follower's log parts from its own (KIP-101, KIP-320)",
        _TWO,
        _rule(compares_logs=False),
    ),
    SmallMutant(
        "no-mark-from-a-diverging-answer",
        "the high watermark of an answer that says that logs diverge is not used (KAFKA-14704)",
        _TWO,
        _rule(diverging_answer_moves_no_mark=False),
    ),
    SmallMutant(
        "no-count-of-a-diverging-fetch",
        "a fetch that is answered with a divergence acknowledges nothing (KIP-595)",
        _QUIET,
        _rule(counts_diverging_fetch=True),
    ),
    SmallMutant(
        "epoch-entry-at-election",
        "an epoch begins at the election, whether or not anything is written (KAFKA-7415)",
        _TWO,
        _rule(marks_epoch_at_election=False),
    ),
    SmallMutant(
        "join-from-epoch-start",
        "a replica joins with all that the log held when the epoch began (KAFKA-7128)",
        replace(_TWO, min_in_sync=2),
        _policy(joins_at_epoch_start=False),
    ),
    SmallMutant(
        "count-joining-replica",
        "a replica that was proposed is waited for at once: maximal in-sync set (KIP-497)",
        _TWO,
        _policy(counts_joining=False),
    ),
    SmallMutant(
        "count-leaving-replica",
        "a replica that is to leave is waited for until it has left (KIP-497)",
        _QUIET,
        switch_on=patch(Shrinking, maximal=property(_shrunken_at_once)),
    ),
    SmallMutant(
        "rest-below-the-minimum",
        "the high watermark rests below min.insync.replicas (D-02, KAFKA-15583)",
        Bounds(records=1, epochs=2, crashes=1, losses=0, expiries=0),
        _policy(strict_min_isr=False),
    ),
    SmallMutant(
        "wait-for-unknown-followers",
        "a new leader knows nothing of its followers until they fetch",
        _QUIET,
        switch_on=patch(Progress, begin_epoch=_begin_known),
    ),
    SmallMutant(
        "forget-older-reigns",
        "what a leader knew counts only if it led in the epoch just before",
        replace(_QUIET, records=1),
        _rule(forgets_older_reigns=False),
    ),
    SmallMutant(
        "mark-never-back",
        "a leader's high watermark never goes back within an epoch",
        replace(_TWO, min_in_sync=2),
        switch_on=patch(Leader, next_high_watermark=_may_go_back),
    ),
    SmallMutant(
        "mark-within-the-log",
        "a follower calls nothing committed that it does not have",
        _TWO,
        switch_on=patch(following, follower_high_watermark=_unclamped),
    ),
    SmallMutant(
        "fence-fetches",
        "a leader serves followers of its own epoch only (KIP-320)",
        _QUIET,
        _rule(checks_fetch_epoch=False),
    ),
    SmallMutant(
        "elect-complete-replicas",
        "the controller elects from the in-sync set and the eligible replicas",
        _FAILING,
        _rule(elects_complete_only=False),
    ),
    SmallMutant(
        "lead-in-this-life-only",
        "a state from before a restart makes no broker the leader (KIP-380)",
        _FAILING,
        _rule(leads_in_own_life_only=False),
    ),
    SmallMutant(
        "notice-restarts",
        "a member that restarted uncleanly is not complete any more (KIP-966)",
        _FAILING,
        switch_on=patch(Brokers, standing=_unclean_is(Standing.PRESENT)),
    ),
    SmallMutant(
        "trust-clean-restarts-only",
        "only a restart that lost nothing keeps a replica complete (KIP-966)",
        replace(_FAILING, replicas=2, records=1),
        switch_on=patch(Brokers, standing=_unclean_is(Standing.CLEAN)),
    ),
    SmallMutant(
        "name-the-life-that-qualified",
        "a proposal names the broker epoch in which the follower qualified (KIP-903)",
        replace(_PAIR, crashes=1, losses=1, delayed=0),
        _rule(names_life_of_joining=False),
    ),
    SmallMutant(
        "check-broker-epochs",
        "the controller compares the broker epochs of proposed members (KIP-903)",
        replace(_PAIR, crashes=1, losses=1, delayed=0),
        switch_on=patch(_Judge, _check_eligible=_no_check),
    ),
    SmallMutant(
        "refuse-fetches-from-before-a-restart",
        "a fetch under an older broker epoch is refused (D-04)",
        replace(_FAILING, records=1, epochs=1, delayed=1),
        switch_on=patch(Leader, _check_broker_epoch=_no_check),
    ),
    SmallMutant(
        "compare-versions",
        "a proposal made from an older version of the state is refused",
        _PAIR,
        switch_on=patch(_Judge, _check_version=_no_check),
    ),
    SmallMutant(
        "keep-what-is-undecided",
        "the version that a leader knows does not end its proposal (KAFKA-14144)",
        _PAIR,
        switch_on=patch(Leader, committed=_committed_again),
    ),
    SmallMutant(
        "mind-open-attempts",
        "a refusal is not the end while an earlier attempt of the same is under way (2.1)",
        replace(_PAIR, crashes=1, losses=1),
        _rule(minds_open_attempts=False),
    ),
    SmallMutant(
        "definite-refusals-only",
        "a refusal that leaves the outcome open does not end a proposal (2.1)",
        Bounds(records=1, epochs=1, expiries=1),
        _rule(keeps_on_open_refusal=False),
    ),
)

_MUTANTS: Final = {mutant.name: mutant for mutant in _ALL}

RULES: Final = {mutant.name: mutant.sentence for mutant in _ALL}
"""The rules that can be switched off, and what they say."""
