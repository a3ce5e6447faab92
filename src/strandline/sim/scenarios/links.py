"""The connections between the brokers of a scenario, on which fetches wait for the script.

Everything that brokers send each other is held, and let through at once unless it is a fetch or the
answer to one. A follower sends its next fetch as soon as it has an answer, and what that says may
be out of date when the script has it fetch: `request` has it sent anew, over another connection.
This file knows wires and frames, and nothing of what the answers mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import permutations
from typing import Final

from strandline.errors import InvariantViolated
from strandline.protocol.apis import ApiKey, api_of
from strandline.protocol.framing import SIZE_BYTES, parse_request_header, parse_response_header
from strandline.protocol.messages.fetch import FetchRequest, FetchResponse
from strandline.protocol.schema import decode_request, decode_response
from strandline.sim.wire_state import Control, Item, Late
from strandline.sim.wires import Wire
from strandline.sim.world import World
from strandline.types import BrokerId

_ROUNDS_MAX: Final = 2_000
_QUIET_ROUNDS: Final = 2
_REDIAL_MS: Final = 10
_REDIALS_MAX: Final = 200
"""A broker dials again after a second at the latest."""


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """A fetch that has reached the leader. Its answer waits on `wire`, once there is one."""

    request: FetchRequest
    version: int
    wire: Wire

    @property
    def is_answered(self) -> bool:
        """Whether the leader has answered it, and the connection still stands."""
        return any(map(_bytes_of, self.wire.held))

    @property
    def answer(self) -> FetchResponse:
        """What the answer says; only if `is_answered`."""
        frame = b"".join(map(_bytes_of, self.wire.held))[SIZE_BYTES:]
        _, position = parse_response_header(memoryview(frame), api_of(ApiKey.FETCH), self.version)
        answer = decode_response(ApiKey.FETCH, self.version, frame, position)
        if not isinstance(answer, FetchResponse):
            raise InvariantViolated(f"A fetch was answered with {answer!r}.")
        return answer


class Links:
    """See the module. `is_cut` says which brokers nothing passes between."""

    def __init__(
        self,
        sim: World,
        brokers: Iterable[BrokerId],
        is_cut: Callable[[BrokerId, BrokerId], bool],
    ) -> None:
        self._sim = sim
        self._network = sim.network
        self._is_cut = is_cut
        self._pairs = list(permutations(brokers, 2))
        self._exchanges: dict[Wire, Exchange] = {}
        for pair in self._pairs:
            self._network.clog(*pair)

    def flow(self) -> None:
        """Let happen what happens at once, with whatever it takes but fetches."""
        quiet = 0
        for _ in range(_ROUNDS_MAX):
            quiet = 0 if self._pass_on() else quiet + 1
            if quiet > _QUIET_ROUNDS:
                return
        raise InvariantViolated("The brokers of the scenario do not come to rest.")

    def _pass_on(self, ms: int = 1) -> bool:
        """Some time; whether anything went from one broker to another at its end."""
        self._sim.run_for(ms)
        passed = False
        for pair in self._pairs:
            for wire in self._network.held(*pair):
                if self._is_cut(*pair) or wire in self._exchanges or _fetch_on(wire):
                    continue
                wire.let_one_through()
                passed = True
        return passed

    # -- Fetches -----------------------------------------------------------------------------

    def renew(self, follower: BrokerId, leader: BrokerId) -> None:
        """Lose what is under way between the two; the follower sends what it wants now."""
        self._network.reset(follower, leader)

    def waiting(self, follower: BrokerId, leader: BrokerId) -> tuple[Wire, FetchRequest] | None:
        """The fetch that waits to be let through, and its connection; None if none comes soon."""
        for _ in range(_REDIALS_MAX):
            for wire in self._network.held(follower, leader):
                found = _fetch_on(wire)
                if found is not None:
                    return wire, found[0]
            self._pass_on(_REDIAL_MS)
        return None

    def ask(self, wire: Wire) -> Exchange:
        """Let a fetch that waits reach the leader."""
        found = _fetch_on(wire)
        if found is None or wire.other is None:
            raise InvariantViolated(f"No fetch waits on {wire}.")
        exchange = Exchange(*found, wire.other)
        self._exchanges = {wire: each for wire, each in self._exchanges.items() if wire.is_open} | {
            wire.other: exchange
        }
        wire.let_one_through()
        self.flow()
        return exchange

    def answer(self, exchange: Exchange) -> None:
        """Let the answer reach the follower, with what it does then."""
        while exchange.is_answered:
            exchange.wire.let_one_through()
        self._exchanges.pop(exchange.wire, None)
        self.flow()


def _fetch_on(wire: Wire) -> tuple[FetchRequest, int] | None:
    """The fetch request that waits on a connection, and its version; None for anything else, and
    for one that is to find out that there is nothing at the other end any more."""
    data = _bytes_of(wire.held[0])
    if wire.is_accepted or wire.other is None or not wire.other.is_open:
        return None
    if int.from_bytes(data[SIZE_BYTES : SIZE_BYTES + 2]) != ApiKey.FETCH:
        return None
    frame = memoryview(data)[SIZE_BYTES:]
    header, position = parse_request_header(frame)
    request = decode_request(header.api_key, header.api_version, bytes(frame), position)
    return (request, header.api_version) if isinstance(request, FetchRequest) else None


def _bytes_of(item: Item) -> bytes:
    if isinstance(item, Control):
        return b""
    return item.as_sent if isinstance(item, Late) else item
