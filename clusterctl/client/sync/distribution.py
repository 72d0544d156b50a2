"""The chain of nodes that pass contents on: who receives them from whom, and what happens to slow and failed ones."""

from __future__ import annotations

import secrets
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from clusterctl.client.rpc.session import Session
from clusterctl.node_texts import translate_node_text
from clusterctl.plans.sync.pace import Rates, Sample, add_sample, find_slow
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.contents import Offer

Via = Literal["auto", "direct", "tree"]

MIN_NODES = 3  # nodes for which passing on can win
MIN_TOTAL_BYTES = 256_000_000  # bytes for all nodes together; below, the rounds cost more than they save
# receivers that failed, before any had it, from which it follows that the nodes do not reach each other
MAX_FAILURES = 2
MAX_RECEIVERS = 3  # at once from one node, which turns away more than four (node/sync/transfer.py)


@dataclass(frozen=True)
class TransferAddress:
    """Where a node can be reached by the others, and on which ports it may listen."""

    address: str
    ports: tuple[int, int] | None = None


@dataclass(frozen=True)
class Provider:
    """A node that has all contents, and the port where it gives them on."""

    node: str
    address: str
    port: int


@dataclass
class Distribution:
    """Puts the nodes that lack contents into a chain; used by one thread for each node, and closed when all have them.

    The first is sent them from here. Each other receives them from the one that was last before it, which sends on what
    it receives while it receives it. A node that fails is left out: the next continues with the one before it. A node
    that receives much slower than most goes to the end; a second one that is slow at the same provider means that this
    sends slowly, and then it has no receivers any more.
    `addresses` are the training addresses by node; with `auto` there is a chain where that saves much sending.
    """

    via: Via
    addresses: Mapping[str, TransferAddress]
    notice: Callable[[str], None] = lambda _: None
    token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)

    def __post_init__(self) -> None:
        self._lock = threading.Lock()
        self._chain: list[Provider] = []  # to which more receivers may go
        self._before: dict[Provider, Provider | None] = {}
        self._own: dict[str, Provider] = {}  # by receiver: at which it sends on
        self._provider_of: dict[str, Provider] = {}  # by receiver that is not done
        self._complaints: defaultdict[Provider, set[str]] = defaultdict(set)
        self._open_sessions: list[Session] = []
        self._any_succeeded = False  # one node has had it from another
        self._samples: dict[str, tuple[Sample, ...]] = {}  # of receivers, since each has its provider
        self._slow_receivers: defaultdict[Provider, set[str]] = defaultdict(set)
        self._moved: dict[str, Provider] = {}  # receivers whose nodes have not been sent their new provider

    def offer(self, node: str, size: int) -> Offer | None:
        """Return where a node is to provide contents, of a tree of `size` bytes; None if it is not."""
        if node not in self.addresses or not self._is_worthwhile(size):
            return None
        address = self.addresses[node]
        return {"address": address.address, "ports": address.ports, "token": self.token}

    def add_source(self, node: str, port: int) -> None:
        """Begin the chain with a node that has everything."""
        with self._lock:
            self._append(node, port)

    def join(self, node: str, port: int | None, size: int) -> Provider | None:
        """Put a node that lacks `size` bytes at the end, if it provides at a port; return whom it receives from.

        None: it lacks nothing, or we send it.
        """
        with self._lock:
            last = self._chain[-1] if self._chain else None
            if port is not None and node in self.addresses:
                self._own[node] = self._append(node, port)
            if size and node in self.addresses and self._is_worthwhile(size):
                return self._assign(node, last)
            return None

    def replace_provider(self, node: str, problem: str) -> Provider | None:
        """Return the provider before that of a node, which reports a problem with it; None if we send."""
        with self._lock:
            failed = self._provider_of.pop(node, None)
            self._forget(node)
            if failed is None:
                return None
            self._complaints[failed].add(node)
            if len(self._complaints[failed]) >= MAX_FAILURES:
                self._leave_out(failed)
            before = self._assign(node, self._before[failed])
        facts = {"node": node, "provider": failed.node, "problem": translate_node_text(problem)}
        if before is None:
            text = tr(
                "{node} could not fetch files from {provider} ({problem}); they are sent from this machine",
                **facts,
            )
        else:
            text = tr(
                "{node} could not fetch files from {provider} ({problem}); it continues with {other}",
                other=before.node,
                **facts,
            )
        self.notice(text)
        return before

    def report_progress(self, node: str, taken: int, waited: float) -> Provider | None:
        """Note how much a node has had from others by now, and for how long those had nothing to send.

        Returns its new provider, if it has one by now.
        """
        with self._lock:
            if node not in self._provider_of:
                return None
            sample = Sample(time.monotonic(), taken, waited)
            self._samples[node] = add_sample(self._samples.get(node, ()), sample)
            rates = find_slow(self._samples, node)
            judged = any(node in nodes for nodes in self._slow_receivers.values())
            text = self._on_slow(node, rates) if rates is not None and not judged else ""
            moved = self._moved.pop(node, None)
        if text:
            self.notice(text)
        return moved

    def _on_slow(self, node: str, rates: Rates) -> str:
        """Put a node that receives slowly, or the one that sends to it, where no other waits for it; say so."""
        provider = self._provider_of[node]
        before = self._before[provider]
        self._slow_receivers[provider].add(node)
        facts = {
            "node": node,
            "provider": provider.node,
            "rate": f"{rates.own / 1e6:.1f}",
            "median": f"{rates.median / 1e6:.1f}",
        }
        if len(self._slow_receivers[provider]) >= MAX_FAILURES and before is not None:
            self._leave_out(provider)
            self._move_receivers(provider, before)
            return tr(
                "{provider} sends {rate} MB/s, most nodes {median} MB/s: its receivers continue with {other}",
                other=before.node,
                **facts,
            )
        own = self._own.get(node)
        last = next((one for one in reversed(self._chain) if one != own), provider)
        if own is not None and own in self._chain and last != provider:
            self._move_receivers(own, provider)
            self._leave_out(own)
            self._chain.append(own)
            self._before[own] = last
            self._move(node, last)
        return tr(
            "{node} receives {rate} MB/s from {provider}, most nodes {median} MB/s: no other node waits for it now",
            **facts,
        )

    def _move_receivers(self, provider: Provider, to: Provider) -> None:
        """Have the receivers of a node receive from another; what comes after it in the chain comes after that one."""
        for one, before in self._before.items():
            if before == provider:
                self._before[one] = to
        for node in [node for node, own in self._provider_of.items() if own == provider]:
            self._move(node, to)

    def _move(self, node: str, to: Provider) -> None:
        self._provider_of[node] = self._moved[node] = to
        self._samples.pop(node, None)

    def index_of(self, provider: Provider) -> int:
        """Return how far a provider is from the beginning of the chain, from 1."""
        with self._lock:
            index, before = 1, self._before[provider]
            while before is not None:
                index, before = index + 1, self._before[before]
            return index

    def succeed(self, node: str) -> None:
        """A node has all contents: one that had them from another shows that the nodes reach each other."""
        with self._lock:
            provider = self._provider_of.pop(node, None)
            self._forget(node)
            self._any_succeeded = self._any_succeeded or provider is not None

    def remove_node(self, node: str) -> None:
        """A node has failed: no other is to receive from it."""
        with self._lock:
            self._provider_of.pop(node, None)
            self._forget(node)
            if node in self._own:
                self._leave_out(self._own[node])

    def keep_open(self, session: Session) -> None:
        """Leave a conversation open until all have the code."""
        self._open_sessions.append(session)

    def close(self) -> None:
        """Stop the providers: they close their listeners."""
        while self._open_sessions:
            with suppress(Exception):
                self._open_sessions.pop().close()

    def _append(self, node: str, port: int) -> Provider:
        provider = Provider(node, self.addresses[node].address, port)
        self._before[provider] = self._chain[-1] if self._chain else None
        self._chain.append(provider)
        return provider

    def _assign(self, node: str, provider: Provider | None) -> Provider | None:
        """Assign a node to a provider, or to the next before it that may have one receiver more."""
        if not self._any_succeeded and len(set().union(*self._complaints.values())) >= MAX_FAILURES:
            return None  # the nodes do not reach each other: each is sent it from here, all at the same time
        while provider is not None:
            receivers = list(self._provider_of.values()).count(provider)
            if (
                provider in self._chain
                and receivers < MAX_RECEIVERS
                and node not in self._complaints[provider]
            ):
                self._provider_of[node] = provider
                return provider
            provider = self._before[provider]
        return None

    def _forget(self, node: str) -> None:
        """Drop what is known of a node as a receiver of the provider that it had."""
        self._samples.pop(node, None)
        self._moved.pop(node, None)

    def _leave_out(self, provider: Provider) -> None:
        if provider in self._chain:
            self._chain.remove(provider)

    def _is_worthwhile(self, size: int) -> bool:
        """Decide whether a chain beats sending `size` bytes to every node."""
        if self.via == "auto":
            return len(self.addresses) >= MIN_NODES and size * len(self.addresses) >= MIN_TOTAL_BYTES
        return self.via == "tree" and len(self.addresses) > 1
