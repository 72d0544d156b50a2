"""GPU memory that is still in use after a run, in words."""

from __future__ import annotations

from clusterctl.plans.memory import render_memory


def test_who_holds_memory() -> None:
    """Pid, account and command, as far as the node shows them."""
    processes = [
        {"pid": 4711, "user": "bob", "command": "python train.py"},
        {"pid": 12, "user": "", "command": ""},
    ]
    raw = [{"gpu": 0, "used": 70000, "by": processes}, {"gpu": 1, "used": 600, "by": []}]
    first, second = render_memory(raw)

    assert first == "GPU 0: 70000 MiB, by pid 4711 of bob (python train.py), pid 12"
    assert second.startswith("GPU 1: 600 MiB, by no process that this node shows")


def test_what_a_node_says_of_it_is_read_with_distrust() -> None:
    """Other types, control characters and long lists do no harm."""
    assert render_memory(None) == render_memory({"gpu": 0}) == render_memory(["x", 7]) == ()
    assert "\n" not in render_memory([{"gpu": "0\n", "used": "\x1b[2J", "by": [{"pid": "a\nb"}] * 99}])[0]
