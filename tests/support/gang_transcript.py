"""Transcripts of gangs: what goes into the agents' gangs at which moment, and all that comes out of them.

python gang_transcript.py FILE...  writes the answers of the code as it is below the script of each file.

The gangs, their channels and listeners are the real code, on a network in memory with a clock that is stepped. The
agent around each gang is a model: it ends its part when it is stopped, reports that nothing is left of it, and gets
ready for the next attempt, each after a fixed time. A script is one line of `key=value` for the run, then lines
`SECONDS COMMAND ARGUMENTS`; see `World`.

In the answers `n1>n0 {...}` is a message as its bytes are on the wire, `n1 NAME {...}` what the gang has its agent do.
Beats are left out unless the run reports `beats=1`. `=3` stands for the third long text or object before.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from memory_keepers import MemoryKeeper
from memory_network import MemorySocket, Network, SteppedLoop

from clusterctl.node.gang import channel, failover
from clusterctl.node.gang.limits import beat_interval
from clusterctl.node.gang.membership import GangContext
from clusterctl.protocol.messages.gang import Failed, StopOrder
from clusterctl.protocol.ranks import Slot

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import Spec

RULE = "----"
CASES = Path(__file__).parents[1] / "node" / "gang" / "cases"
LINE = re.compile(rb"\d+ [0-9a-f]{64} ([.+]) (.*)")
OBJECT = re.compile(r"\{[^{}]*\}")  # the innermost of a message
LONG = 40  # characters of a text that is not repeated
STOP_TIME, CLEAR_TIME, READY_TIME, LISTEN_TIME, KEEPER_TIME, EXIT_TIME = (
    0.2,
    0.3,
    0.7,
    0.1,
    0.05,
    0.01,
)  # seconds of the model agent


def failures(kind: str, rank: int, moment: float) -> list[dict[str, Any]]:
    """Write how a node's rank ended."""
    said = {"last_at": moment, "suspended": False, "tracebacks": [], "tail": []}
    end = {"rank": rank, "exit": None, "signal": None, "time": moment}
    if kind == "killed":
        return [{**end, "signal": 9, **said}]
    if kind == "error":
        lines = ["Traceback (most recent call last):", '  File "train.py", line 3', "ValueError: bad loss"]
        return [{**end, "exit": 1, **said, "tracebacks": [{"at": moment, "lines": lines}], "tail": lines}]
    return []


class Agent(GangContext):
    """A model of the agent around one gang."""

    loop: Any  # a loop by shape

    def __init__(self, world: World, slot: int) -> None:
        self.world, self.slot, self.name = world, slot, f"n{slot}"
        spec: Any = world.make_spec(slot)
        super().__init__(SteppedLoop(world.network, spec["address"]), spec, b"token")  # type: ignore[arg-type]  # by shape
        role = failover.start(self)
        self.gang, self.roster = role, role.roster
        self.port = 0
        self.started = self.ended = self.concluded = self.frozen = self.dead = False
        self.idle = bool(self.spec.get("spare"))
        self.node_rank: int | None = None if self.idle else slot
        self.attempt = 1
        self.stopped_at: float | None = None
        self.stop_kind = ""
        self._began: float | None = None
        self.held: set[str] = set()  # what it does not do by itself
        self.keeper = MemoryKeeper(slot, world.keepers, self.on_keeper_report)
        self._keeper_work = 0

    def answer(self, name: str, *arguments: Any, **facts: Any) -> None:
        """Write down what the gang wants."""
        values = [value._asdict() if isinstance(value, StopOrder) else value for value in arguments]
        text = " ".join(json.dumps(value) for value in [*values, *([facts] if facts else [])])
        self.world.write(f"{self.name} {name}", text)

    def report(self, event: str, facts: Any) -> None:
        """Keep where it listens."""
        self.answer("report", event, **facts)
        if event in ("hub", "listener"):
            self.port = facts["port"]

    def stop(self, order: StopOrder) -> None:
        """End this node's part."""
        self.answer("stop", order)
        if self.ended or (self.idle and self.started):
            return
        self.stopped_at = self.stopped_at or self.world.network.read_clock()
        self.stop_kind = self.stop_kind or order.kind
        self.later("end", STOP_TIME, lambda: self.end("STOPPED", order.reason))

    def save_record(self, record: Any) -> None:
        """Write it down."""
        self.answer("save_record", record)

    def leave(self) -> None:
        """End: nothing of the gang is left to wait for."""
        self.answer("leave")
        self.loop.after(EXIT_TIME, "agent exit", lambda: self.world.do_kill(str(self.slot)))

    def order_keeper(self, order: Any) -> None:
        """Answer as the keeper, after a while."""
        self.answer("keep", order.do, order.name)
        self._keeper_work += 1
        name = f"keeper {self._keeper_work}"
        self.loop.after(KEEPER_TIME, name, lambda: self.keeper.on_order(order))

    def on_keeper_report(self, report: Any) -> None:
        """Pass it on, as long as the agent lives."""
        if not self.dead:
            self.gang.on_keeper_report(report)

    def save_checkpoints(self, states: Any, events: Any) -> None:
        """Show how far they are, and what has become of some."""
        shown = [f"{state['name']} {state['state']} {state['copies']}" for state in states]
        self.answer("checkpoints", shown)
        for event in events:
            self.answer("checkpoint", event["name"], event["state"], event["note"])

    def begin_keeping(self) -> None:
        """Count checkpoints from now on."""
        rank = -1 if self.node_rank is None else self.node_rank
        self.keeper.attempt, self.keeper.rank = self.attempt, rank

    def later(self, name: str, seconds: float, action: Any) -> None:
        """Do something by itself, unless the script holds it."""
        if name not in self.held:
            self.loop.after(seconds, f"agent {name}", action)

    def beat(self) -> None:
        """Let the gang beat."""
        self.loop.after(beat_interval(self.spec), "agent beat", self.beat)
        self.gang.beat()

    def go(self) -> None:
        """GO."""
        self.started = True
        self.begin_keeping()
        self._began = self.world.network.read_clock()
        self.gang.on_go()

    def end(self, state: str, reason: str = "", kind: str = "") -> None:
        """The part of the attempt has ended."""
        if self.ended:
            return
        self.ended = True
        self.loop.cancel("agent end")
        self.loop.cancel("agent ready")
        now = self.world.network.read_clock()
        rank = self.slot if self.node_rank is None else self.node_rank
        part: Any = {
            "node": self.spec["node"],
            "node_rank": rank,
            "address": self.spec["address"],
            "state": state,
            "reason": reason,
            "time": now,
            "stopped_at": self.stopped_at,
            "stop_kind": self.stop_kind,
            "failures": failures(kind, rank, now),
        }
        self.world.write(f"{self.name} ends", f"{state} {reason}".strip())
        self.gang.on_end(part)
        if self.spec.get("restart") and (self.started or self.attempt > 1) and not self.concluded:
            self.later("clear", CLEAR_TIME, lambda: self.clear("", True))

    def clear(self, unfit: str, progress: bool | None) -> None:
        """Nothing is left of it."""
        self.gang.on_cleared(unfit, progress)

    def begin_attempt(self) -> None:
        """Start the next attempt."""
        self.node_rank = self.roster.node_ranks.get(Slot(self.slot))
        self.idle, self.started, self.stopped_at = self.node_rank is None, self.node_rank is None, None
        self.stop_kind = ""
        self.ended, self.attempt = False, self.roster.attempt
        self.begin_keeping()
        if not self.idle:
            self.later("ready", READY_TIME, self.ready)

    def ready(self) -> None:
        """The gate waits for GO."""
        if self.node_rank == 0:
            self.gang.on_startup_event("port", {"port": 20000 + self.roster.attempt})
        self.gang.on_startup_event("ready", {})

    def take_go(self, port: int) -> None:
        """The gang gives GO."""
        if not self.ended and not self.idle and not self.started:
            self.go()
            if self.node_rank == 0:
                self.later("listening", LISTEN_TIME, lambda: self.listening(port))

    def listening(self, port: int) -> None:
        """Rank 0 listens."""
        self.gang.on_startup_event("listening", {"port": port})

    @property
    def began(self) -> float | None:
        """Return when the attempt got its GO."""
        return self._began

    @property
    def time_left(self) -> float | None:
        """Return what is left of the job's time."""
        limit = self.spec.get("time_limit")
        return limit - self.world.network.now if limit else None

    def save_roster(self, entries: Any) -> None:
        """Show who is lost."""
        self.answer("show_roster", sorted(entry["slot"] for entry in entries if entry.get("lost")))

    def on_pause(self, entry: Any, seconds: float) -> None:
        """Write down that another attempt follows."""
        self.answer("pause", entry, seconds)

    def start_next_attempt(self, roster: Any, time_left: float | None, resume: Any) -> None:
        """Begin it."""
        about = {} if resume is None else {"resume": resume.seal.name}
        self.answer("attempt", roster.attempt, roster.entries, time_left=time_left, **about)
        self.begin_attempt()

    def on_go(self, address: str, port: int) -> None:
        """Give GO."""
        self.answer("go", address, port)
        self.take_go(port)

    def conclude(self, end: Any) -> None:
        """Write down that there is no further attempt."""
        if self.spec.get("restart"):
            self.answer("conclude", end)
            self.concluded = True


class World:
    """Agents, their network and their clock; its public methods without a word before are the commands of a script."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.settings = settings
        self.network = Network()
        self.lines: list[str] = []
        self._seen: dict[str, int] = {}
        self._channels: dict[
            tuple[str, int], Any
        ] = {}  # of a host, by the slot of the peer, which may be itself
        self._unfinished: dict[int, bytes] = {}
        self._pieces: dict[int, str] = {}
        self.nodes, self.spares = int(settings.get("nodes", 2)), int(settings.get("spares", 0))
        self.agents: list[Agent] = []
        self.keepers: dict[int, MemoryKeeper] = {}

    def play(self, script: list[str]) -> list[str]:
        """Play a script; gives the answers."""
        with self.network.replace_sockets(), self._listen_in():
            self.agents = [Agent(self, slot) for slot in range(self.nodes + self.spares)]
            for line in script:
                moment, command, *rest = line.split(None, 2)
                self._run_until(float(moment))
                if command != "end-of-script":
                    self.write("", f"# {command} {rest[0] if rest else ''}".rstrip())
                    getattr(self, f"do_{command}")(rest[0] if rest else "")
                    self._settle()
        errors = [error for agent in self.agents for error in agent.loop.errors]
        if errors:
            raise errors[0]
        return self.lines

    def make_spec(self, slot: int) -> Spec:
        """Make the spec of a node."""
        count = self.nodes + self.spares
        names = [f"gpu0{number + 1}" for number in range(count)]
        spec: dict[str, Any] = {
            "run": "job-1",
            "node": names[slot],
            "nnodes": self.nodes,
            "node_rank": slot,
            "hub": names[0],
            "master_addr": "10.0.0.1",
            "address": f"10.0.0.{slot + 1}",
            "world_size": self.nodes,
            "gang": True,
            "grace": float(self.settings.get("grace", 5)),
            "nodes": names,
        }
        if "node_ports" in self.settings:
            spec["node_ports"] = [
                {"slot": number, "address": f"10.0.0.{number + 1}", "ports": [22]} for number in range(count)
            ]
        for name in ("overdue_limit", "hub_limit", "time_limit"):
            if name in self.settings:
                spec[name] = float(self.settings[name])
        if "max" in self.settings:
            ranks = [number if number < self.nodes else None for number in range(count)]
            roster = [
                {"slot": number, "node": names[number], "node_rank": ranks[number]} for number in range(count)
            ]
            usual = "node_lost,worker_killed"
            restart = {"max": int(self.settings["max"]), "on": self.settings.get("on", usual).split(",")}
            restart["pause"], restart["warm"] = (
                float(self.settings.get("pause", 2)),
                float(self.settings.get("warm", 1)),
            )
            spec.update(slot=slot, slots=count, spare=slot >= self.nodes, roster=roster, restart=restart)
            if "copies" in self.settings:
                copies = int(self.settings["copies"])
                spec["checkpoints"] = {"copies": copies, "keep": 2, "needs": "all"}
            spec.update(attempt=1, module=self.settings.get("module", "torch.distributed.run"))
        return cast("Spec", spec)  # what a gang reads of it

    def write(self, place: str, text: str) -> None:
        """Write an answer down."""
        text = OBJECT.sub(self._shorten_object, text)
        text = text if OBJECT.fullmatch(text) else self._shorten(text)
        self.lines.append(f"{self.network.now:.3f} {place} {text}".replace("  ", " ").rstrip())

    def _shorten(self, text: str) -> str:
        """Give the number of a text that was written before."""
        if len(text) <= LONG:
            return text
        if text in self._seen:
            return f"={self._seen[text]}"
        self._seen[text] = len(self._seen) + 1
        return text

    def _shorten_object(self, found: re.Match[str]) -> str:
        return self._shorten(found[0])

    # the network

    def _listen_in(self) -> Any:
        """Write every message down as its bytes are sent, and remember the channels."""
        send, opened = MemorySocket.send, channel.SecureChannel.open
        world = self

        def record_send(sock: MemorySocket, data: Any) -> int:
            world._on_bytes(sock, bytes(data))
            return send(sock, data)

        def record_open(one: Any, *arguments: Any) -> None:
            world._channels[(world.network.current_host, int(one.slot))] = one
            opened(one, *arguments)

        return _replaced((MemorySocket, "send", record_send), (channel.SecureChannel, "open", record_open))

    def _on_bytes(self, sock: MemorySocket, data: bytes) -> None:
        number = sock.fileno()
        *lines, self._unfinished[number] = (self._unfinished.get(number, b"") + data).split(b"\n")
        for line in lines:
            found = LINE.fullmatch(line)
            if found is not None:
                self._pieces[number] = self._pieces.get(number, "") + found[2].decode("ascii")
                if found[1] == b".":
                    self._on_text(sock, self._pieces.pop(number))

    def _on_text(self, sock: MemorySocket, text: str) -> None:
        if text.startswith('{"kind": "beat"') and "beats" not in self.settings:
            return
        other = sock.other.host if sock.other is not None else "?.0"
        self.write(f"{self._name(sock.host)}>{self._name(other)}", text)

    def _name(self, host: str) -> str:
        return f"n{int(host.rpartition('.')[2]) - 1}"

    def _run_until(self, moment: float) -> None:
        while True:
            waiting = [
                (*following, agent.slot)
                for agent in self.agents
                if not agent.frozen and (following := agent.loop.next_moment()) is not None
            ]
            due = min(((one[0], one[2], one[1]) for one in waiting), default=None)
            if due is None or due[0] > moment:
                break
            self.network.now = max(self.network.now, due[0])
            self.agents[due[1]].loop.run_moment(due[2])
            self._settle()
        self.network.now = moment

    def _settle(self) -> None:
        while sum(agent.loop.serve() for agent in self.agents if not agent.frozen):
            pass

    # the commands

    def _on(self, slot: str) -> Agent:
        agent = self.agents[int(slot)]
        self.network.current_host = agent.loop.host
        return agent

    def do_begin(self, _: str) -> None:
        """Open all, join, GO."""
        self.do_open("")
        self.do_join("")
        self.do_go("")

    def do_open(self, _: str) -> None:
        """Open all, and let them beat."""
        for agent in self.agents:
            agent.loop.call(agent.gang.open)
            agent.loop.after(beat_interval(agent.spec), "agent beat", agent.beat)

    def do_join(self, without: str) -> None:
        """Let all join but those that are named."""
        doors = [[agent.slot, agent.spec["address"], agent.port] for agent in self.agents]
        for agent in self.agents:
            self.network.current_host = agent.loop.host
            agent.gang.set_listen_addresses(doors)
            if agent.slot and str(agent.slot) not in without.split():
                agent.gang.join(self.agents[0].port)
                self._settle()

    def do_go(self, slots: str) -> None:
        """Give GO, to these or to all that have not ended."""
        named = [int(slot) for slot in slots.split()] or range(len(self.agents))
        for slot in named:
            if not self.agents[slot].ended and not self.agents[slot].frozen:
                self._on(str(slot)).go()
                self._settle()

    def do_end(self, text: str) -> None:
        """End a part: SLOT STATE [KIND [REASON]]."""
        slot, state, kind, reason = [*text.split(None, 3), "", ""][:4]
        self._on(slot).end(state, reason, kind)

    def do_fail(self, text: str) -> None:
        """Fail on a node: SLOT REASON; the part ends by the script."""
        slot, reason = text.split(None, 1)
        self._on(slot).gang.report(Failed(self._on(slot).roster.attempt, reason))

    def do_stop(self, text: str) -> None:
        """Stop on a node: SLOT GRACE OCCASION REASON."""
        slot, grace, occasion, reason = text.split(None, 3)
        agent = self._on(slot)
        order = StopOrder(reason, float(grace), occasion)
        agent.gang.report(order)
        agent.stop(order)

    def do_hold(self, text: str) -> None:
        """Let an agent not do by itself: SLOT end|clear|ready|listening ..."""
        slot, *names = text.split()
        self.agents[int(slot)].held |= set(names)

    def do_clear(self, text: str) -> None:
        """Nothing is left: SLOT true|false|null [UNFIT]."""
        slot, progress, unfit = [*text.split(None, 2), ""][:3]
        self._on(slot).clear(unfit, json.loads(progress))

    def do_ready(self, slot: str) -> None:
        """A gate waits for GO."""
        self._on(slot).ready()

    def do_listening(self, text: str) -> None:
        """Rank 0 listens: SLOT PORT."""
        slot, port = text.split()
        self._on(slot).listening(int(port))

    def do_leave(self, slot: str) -> None:
        """The agent can take part no more."""
        self._on(slot).gang.leave()

    def do_save(self, text: str) -> None:
        """All ranks write a checkpoint, and a node sees it: NAME SLOT."""
        name, slot = text.split()
        for agent in self.agents:
            if not agent.dead and not agent.idle:
                agent.keeper.write(name)
        self._on(slot).keeper.mark(name)

    def do_freeze_keeper(self, slot: str) -> None:
        """Stop a keeper from answering."""
        self.agents[int(slot)].keeper.silent = {"take", "collect", "conclude"}

    def do_thaw_keeper(self, slot: str) -> None:
        """Answer all that it was asked."""
        keeper = self._on(slot).keeper
        keeper.silent, orders = set(), keeper.orders[:]
        for order in orders:
            keeper.on_order(order)

    def do_kill(self, slots: str) -> None:
        """Kill agents: their connections end."""
        for slot in slots.split():
            agent = self._on(slot)
            agent.frozen = agent.dead = True
            self.keepers.pop(agent.slot, None)
            for sock in list(self.network.sockets.values()):
                if sock.host == agent.loop.host:
                    sock.close()

    def do_freeze(self, slots: str) -> None:
        """Halt agents: nothing comes from them any more."""
        for slot in slots.split():
            self.agents[int(slot)].frozen = True

    def do_thaw(self, slot: str) -> None:
        """Let an agent run again."""
        self.agents[int(slot)].frozen = False

    def do_turns(self, slots: str) -> None:
        """Let halted agents run for one turn each, in this order."""
        for slot in slots.split():
            self.agents[int(slot)].loop.serve()

    def do_cut(self, slots: str) -> None:
        """Cut the ways between these nodes and the others."""
        self.network.apart = {self.agents[int(slot)].loop.host for slot in slots.split()}

    def do_cut_pair(self, slots: str) -> None:
        """Cut the way between two nodes."""
        self.network.cut_pairs.append({self.agents[int(slot)].loop.host for slot in slots.split()})

    def do_filter(self, slots: str) -> None:
        """Let a firewall drop new connections to ports of these nodes on which no agent listens."""
        self.network.filtered = {self.agents[int(slot)].loop.host for slot in slots.split()}

    def do_reset(self, slots: str) -> None:
        """Let sending to these nodes fail."""
        self.network.resetting = {self.agents[int(slot)].loop.host for slot in slots.split()}

    def do_clock(self, text: str) -> None:
        """Set a node's clock: SLOT SECONDS ahead."""
        slot, seconds = text.split()
        self.network.clock_offsets[self.agents[int(slot)].loop.host] = float(seconds)

    def do_say(self, text: str) -> None:
        """Let a node send what its code would not: FROM TO JSON."""
        one, other, message = text.split(None, 2)
        agent = self._on(one)
        key = (agent.loop.host, int(other))
        self._channels[key if key in self._channels else (agent.loop.host, agent.slot)].send(message)


@contextmanager
def _replaced(*changes: tuple[Any, str, Any]) -> Iterator[None]:
    """Replace attributes for a while: object, name, value."""
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in changes]
    try:
        for owner, name, value in changes:
            setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in saved:
            setattr(owner, name, value)


def read_case(text: str) -> tuple[str, list[str], str]:
    """Split a case into its settings, its script, and the answers."""
    head, _, answers = text.partition(f"{RULE}\n")
    lines = [line for line in head.splitlines() if line and not line.startswith("#")]
    return lines[0], lines[1:], answers


def play_case(text: str) -> str:
    """Play the script of a case; gives the answers."""
    settings, script, _ = read_case(text)
    pairs = dict(word.split("=", 1) for word in settings.split()[1:])
    return "".join(f"{line}\n" for line in World(pairs).play(script))


def cases() -> Iterator[Path]:
    """Name all cases."""
    yield from sorted(CASES.glob("*.txt"))


if __name__ == "__main__":
    for path in map(Path, sys.argv[1:]):
        content = path.read_text()
        path.write_text(content.partition(f"{RULE}\n")[0].rstrip("\n") + f"\n{RULE}\n" + play_case(content))
