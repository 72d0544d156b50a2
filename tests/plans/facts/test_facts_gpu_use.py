"""GPU memory that is still in use after a run, in words."""

from __future__ import annotations

from clusterctl.plans.facts.facts import render_gpu_memory
from clusterctl.protocol.untrusted import Untrusted


def test_who_holds_memory() -> None:
    """Pid, account and command, as far as the node shows them."""
    processes = [
        {"pid": 4711, "user": "bob", "command": "python train.py"},
        {"pid": 12, "user": "", "command": ""},
    ]
    raw = [{"gpu": 0, "used": 70000, "by": processes}, {"gpu": 1, "used": 600, "by": []}]
    first, second = render_gpu_memory([Untrusted(entry) for entry in raw])

    assert first == "GPU 0: 70000 MiB, by pid 4711 of bob (python train.py), pid 12"
    assert second.startswith("GPU 1: 600 MiB, by a process not visible on this node")


def test_what_a_node_reports_of_it_is_read_with_distrust() -> None:
    """Other types, control characters and long lists do no harm."""
    raw = {"gpu": "0\n", "used": "\x1b[2J", "by": [{"pid": "a\nb", "user": "\x1b[2J", "command": "\n"}] * 99}
    (line,) = render_gpu_memory([Untrusted(raw)])
    assert line.isprintable()
    assert line.count("pid ?") == 8
