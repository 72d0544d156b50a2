"""Nodes that share a work directory: one fills it, the others find it full."""

from __future__ import annotations

import threading
import time
from contextlib import suppress

from waiting import HANG

from clusterctl.client.sync.upload import SharedHomeLocks


def test_the_first_goes_alone_and_a_failure_passes_the_turn_on() -> None:
    """Of four at one place the first fails, the second fills it, the rest go together; elsewhere no one waits."""
    turns, log, lock = SharedHomeLocks(), list[str](), threading.Lock()
    together = threading.Barrier(2, timeout=HANG)

    def work(name: str, place: str) -> None:
        with suppress(RuntimeError), turns.acquire(place):
            with lock:
                log.append(name)
                order = len(log)
            if order == 1:
                time.sleep(0.1)
                raise RuntimeError
            if order == 2:
                time.sleep(0.1)
                assert len(log) == 2
            else:
                together.wait()

    workers = [threading.Thread(target=work, args=(name, "nfs")) for name in "abcd"]
    for worker in workers:
        worker.start()
    with turns.acquire("disk"), turns.acquire(""), turns.acquire(""):
        pass
    for worker in workers:
        worker.join(HANG)

    assert sorted(log) == ["a", "b", "c", "d"]
    assert not together.broken
