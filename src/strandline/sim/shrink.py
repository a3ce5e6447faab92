"""Makes a plan that goes wrong as small as it can be while it still goes wrong.

Theory: every line of a plan can be left out, because an action carries its own healing and every
random choice comes from a stream of its own: what is left behaves much as before. So a plan is a
list of parts, and delta debugging (Zeller's ddmin) finds a subset of which no single part can be
left out. What makes runs shorter comes first: everything after the failure, clients, topics. Then
actions, for most of them have nothing to do with it; then brokers, and all that differs from a calm
cluster (settings, latencies, options of clients); last the lengths of things.

All of it is deterministic; only a limit of time makes the result depend on the machine. This
file knows plans and asks `is_bad`, which runs them; it knows no world. `is_bad` must be true of the
same failure only, or the end is another bug than the beginning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple, TypeVar

from strandline.sim.plan import Action, ClientSpec, Options, Plan, TopicSpec
from strandline.sim.scenarios.script import BadScript, format_us, parse_us
from strandline.sim.text import EXPECT, format_plan

T = TypeVar("T")
Reset = Callable[[Plan], Plan]
"""Makes one thing of a plan as it is by default. They can be done in any order."""

SHORTEST_PHASE_US: Final = 100_000
ROUNDINGS_US: Final = (100_000, 10_000, 1_000)
SHORTEST_TIME_US: Final = 1_000


class Progress(NamedTuple):
    """How far it is."""

    runs: int
    lines: int
    """Of the smallest plan so far, as text."""
    doing: str


def shrink(
    plan: Plan,
    is_bad: Callable[[Plan], bool],
    progress: Callable[[Progress], None] = lambda _: None,
    *,
    may_go_on: Callable[[], bool] = lambda: True,
    fails_at_us: int | None = None,
) -> Plan:
    """The smallest plan that was found for which `is_bad` holds; `plan` itself must be bad.

    `fails_at_us` says how long after the beginning of its phase of faults it fails, if it does so
    in that phase: then hardly anything later can matter. `may_go_on` is asked before every run;
    when it says no, the smallest so far is the answer.
    Raises `ValueError` if `plan` is not bad.
    """
    if not is_bad(plan):
        raise ValueError("The plan that is to be shrunk does not fail.")
    shrinker = _Shrinker(plan, is_bad, progress, may_go_on)
    try:
        if fails_at_us is not None:
            shrinker.end_at(fails_at_us)
        shrinker.run()
    except _Enough:
        progress(shrinker.at("stopping"))
    return shrinker.plan


class _Enough(Exception):
    """There is no time for another run."""


class _Shrinker:
    """The smallest plan so far, and the ways to a smaller one."""

    def __init__(
        self,
        plan: Plan,
        is_bad: Callable[[Plan], bool],
        progress: Callable[[Progress], None],
        may_go_on: Callable[[], bool],
    ) -> None:
        self.plan = plan
        self._is_bad = is_bad
        self._progress = progress
        self._may_go_on = may_go_on
        self._tried: set[str] = {format_plan(plan)}
        self._runs = 1
        self._doing = ""

    def at(self, doing: str) -> Progress:
        """How far it is."""
        return Progress(self._runs, len(format_plan(self.plan).splitlines()), doing)

    def end_at(self, end_us: int) -> None:
        """Try to end the phase of faults soon after that."""
        self._doing = "the end"
        end_us = _rounded(max(0, end_us), SHORTEST_PHASE_US) + SHORTEST_PHASE_US
        if end_us < self.plan.options.safety_us:
            self._try(_ended(self.plan, end_us))

    def run(self) -> None:
        """All passes, until none of them finds anything."""
        passes: tuple[tuple[str, Callable[[], None]], ...] = (
            ("the end", self._end),
            ("clients", self._clients),
            ("topics", self._topics),
            ("actions", self._actions),
            ("brokers", self._brokers),
            ("settings", self._settings),
            ("times", self._times),
        )
        before = None
        while before != self.plan:
            before = self.plan
            for self._doing, each in passes:
                self._progress(self.at(self._doing))
                each()
        self._progress(self.at("done"))

    def _try(self, candidate: Plan) -> bool:
        """Take a plan if it is bad, too; returns whether it was taken."""
        text = format_plan(candidate)
        if text in self._tried:
            return False
        if not self._may_go_on():
            raise _Enough
        self._tried.add(text)
        self._runs += 1
        is_bad = self._is_bad(candidate)
        if is_bad:
            self.plan = candidate
        self._progress(self.at(self._doing))
        return is_bad

    def _try_with(self, make: Callable[[Sequence[T]], Plan], items: Sequence[T]) -> bool:
        return self._try(make(items))

    # -- The passes --------------------------------------------------------------------------

    def _end(self) -> None:
        """End the phase of faults sooner, with all actions that come later."""
        shorter = True
        while shorter and self.plan.options.safety_us > SHORTEST_PHASE_US:
            shorter = False
            for quarters in (1, 2, 3):
                cut = self.plan.options.safety_us * quarters // 4
                end_us = max(SHORTEST_PHASE_US, _rounded(cut, SHORTEST_PHASE_US))
                if end_us < self.plan.options.safety_us and self._try(_ended(self.plan, end_us)):
                    shorter = True
                    break

    def _actions(self) -> None:
        kept = [action for action in self.plan.actions if action.verb == EXPECT]
        actions = [action for action in self.plan.actions if action.verb != EXPECT]

        def without(items: Sequence[Action]) -> Plan:
            ordered = sorted([*items, *kept], key=lambda action: action.at_us)
            return replace(self.plan, actions=tuple(ordered))

        minimize(actions, partial(self._try_with, without))

    def _clients(self) -> None:
        minimize(
            self.plan.clients,
            lambda items: self._try(replace(self.plan, clients=tuple(items))),
        )

    def _topics(self) -> None:
        minimize(
            self.plan.options.topics,
            lambda items: self._try(_with_options(self.plan, topics=tuple(items))),
        )
        for index in range(len(self.plan.options.topics)):
            while (partitions := self.plan.options.topics[index].partitions) > 1:
                if not any(
                    self._try(_with_topic(self.plan, index, partitions=fewer))
                    for fewer in sorted({1, partitions - 1})
                ):
                    break

    def _brokers(self) -> None:
        while (brokers := self.plan.options.brokers) > 1:
            if not self._try(_with_brokers(self.plan, brokers - 1)):
                break

    def _settings(self) -> None:
        """Whatever differs from a calm cluster, in one heap."""
        plan = self.plan
        resets = list(_resets(plan))

        def kept(items: Sequence[tuple[int, Reset]]) -> Plan:
            stays = {index for index, _ in items}
            changed = plan
            for index, reset in enumerate(resets):
                if index not in stays:
                    changed = reset(changed)
            return changed

        minimize(list(enumerate(resets)), partial(self._try_with, kept))

    def _times(self) -> None:
        """Round numbers, and shorter ones."""
        for rounding_us in ROUNDINGS_US:
            if self._try(_with_times_rounded(self.plan, rounding_us)):
                break
        for index in range(len(self.plan.actions)):
            for name in self.plan.actions[index].options:
                self._shorten(index, name)

    def _shorten(self, index: int, name: str) -> None:
        """The shortest time that an action can do with, at once or by halves."""
        try:
            time_us = parse_us(self.plan.actions[index].options[name])
        except BadScript:
            return
        if time_us <= SHORTEST_TIME_US or self._try_time(index, name, SHORTEST_TIME_US):
            return
        while (half_us := _rounded(time_us // 2, SHORTEST_TIME_US)) > SHORTEST_TIME_US:
            if not self._try_time(index, name, half_us):
                return
            time_us = half_us

    def _try_time(self, index: int, name: str, time_us: int) -> bool:
        actions = list(self.plan.actions)
        options = {**actions[index].options, name: format_us(time_us)}
        actions[index] = replace(actions[index], options=options)
        return self._try(replace(self.plan, actions=tuple(actions)))


def minimize(items: Sequence[T], is_bad: Callable[[Sequence[T]], bool]) -> Sequence[T]:
    """A subset that is bad, and of which no single item can be left out; order is kept.

    All items together are taken to be bad. Tries nothing at all first, then halves, quarters and so
    on, and asks for the rest without them.
    """
    if items and is_bad(()):
        return ()
    size = (len(items) + 1) // 2
    while size >= 1 and len(items) > 1:
        position = 0
        removed = False
        while position < len(items) and len(items) > size:
            fewer = [*items[:position], *items[position + size :]]
            if is_bad(fewer):
                items, removed = fewer, True
            else:
                position += size
        if size == 1 and not removed:
            break
        if not (size == 1 and removed):
            size = (size + 1) // 2 if size > 1 else 1
    return items


# -- Smaller plans ---------------------------------------------------------------------------


def _with_options(plan: Plan, **changes: object) -> Plan:
    return replace(plan, options=replace(plan.options, **changes))  # type: ignore[arg-type]


def _ended(plan: Plan, end_us: int) -> Plan:
    actions = tuple(action for action in plan.actions if action.at_us <= end_us)
    return replace(_with_options(plan, safety_us=end_us), actions=actions)


def _with_topic(plan: Plan, index: int, **changes: object) -> Plan:
    topics = list(plan.options.topics)
    topics[index] = replace(topics[index], **changes)  # type: ignore[arg-type]
    return _with_options(plan, topics=tuple(topics))


def _with_brokers(plan: Plan, brokers: int) -> Plan:
    options = plan.options
    topics = tuple(
        replace(topic, replication=min(topic.replication, brokers)) for topic in options.topics
    )
    return _with_options(
        plan,
        brokers=brokers,
        topics=topics,
        racks=options.racks[:brokers],
        minimums=options.minimums[:brokers],
        drifts_ppm=options.drifts_ppm[:brokers],
        wall_offsets_ms=options.wall_offsets_ms[:brokers],
    )


def _with_times_rounded(plan: Plan, rounding_us: int) -> Plan:
    actions = [
        replace(action, at_us=_rounded(action.at_us, rounding_us)) for action in plan.actions
    ]
    return replace(plan, actions=tuple(sorted(actions, key=lambda action: action.at_us)))


def _rounded(time_us: int, to_us: int) -> int:
    return time_us // to_us * to_us


# -- What can be as it is by default ---------------------------------------------------------


_OPTIONS: Final = (
    "racks",
    "disks",
    "latency",
    "store_latency_us",
    "store_lag_us",
    "minimums",
    "knobs",
    "drifts_ppm",
    "wall_offsets_ms",
    "liveness_us",
)


def _resets(plan: Plan) -> Iterator[Reset]:
    calm = Options(seed=plan.options.seed)
    for name in _OPTIONS:
        if getattr(plan.options, name) != getattr(calm, name):
            yield partial(_with_options, **{name: getattr(calm, name)})
    for knob in plan.options.knobs:
        yield partial(_without_knob, knob=knob)
    for setting in plan.options.settings:
        yield partial(_without_setting, setting=setting)
    for index, topic in enumerate(plan.options.topics):
        for config in topic.configs:
            yield partial(_without_config, index=index, config=config)
    for index, client in enumerate(plan.clients):
        for option in client.options:
            yield partial(_without_client_option, index=index, option=option)


def _without(mapping: Mapping[str, str], name: str) -> dict[str, str]:
    return {key: value for key, value in mapping.items() if key != name}


def _without_knob(plan: Plan, knob: str) -> Plan:
    knobs = {name: value for name, value in plan.options.knobs.items() if name != knob}
    return _with_options(plan, knobs=knobs)


def _without_setting(plan: Plan, setting: str) -> Plan:
    return _with_options(plan, settings=_without(plan.options.settings, setting))


def _without_config(plan: Plan, index: int, config: str) -> Plan:
    topic: TopicSpec = plan.options.topics[index]
    return _with_topic(plan, index, configs=_without(topic.configs, config))


def _without_client_option(plan: Plan, index: int, option: str) -> Plan:
    clients: list[ClientSpec] = list(plan.clients)
    clients[index] = replace(clients[index], options=_without(clients[index].options, option))
    return replace(plan, clients=tuple(clients))
