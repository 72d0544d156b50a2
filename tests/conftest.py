"""What tests of several folders share."""

from __future__ import annotations

import gc
import json
import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from suites import cost_of
from surroundings import remove, shut_out

HOME = pytest.StashKey[Path]()

# What takes longest, by its processor time and its waiting together, begun first.
LONGEST = (
    "test_tutorials_lab",
    "test_tutorials_addresses",
    "test_attacks",
    "test_alone_lab",
    "test_slurm_lab",
    "test_fault_matrix",
    "test_export_lab",
    "test_placed_signals",
    "test_quickstart",
    "test_speed_lab",
    "test_anywhere",
    "test_launch",
    "test_lab",
    "test_session",
    "test_first_training",
    "test_kill",
    "test_setup_lab",
    "test_bastion",
    "test_results",
    "test_diagnose_lab",
    "test_setup_stages",
    "test_restart_lab",
    "test_warm_lab",
    "test_openssh",
    "test_mesh",
    "test_logs_lab",
    "test_keys_push",
    "test_strangers",
    "test_inproc",
    "test_run",
    "test_init_lab",
    "test_cluster_routes",
    "test_faults",
    "test_causes",
    "test_main",
    "test_locks_lab",
    "test_deep",
    "test_log_reader",
    "test_recorded_runs",
    "test_end_lab",
    "test_failure_screen",
    "test_launchers",
    "test_probe",
    "test_asking",
    "test_time_limit",
    "test_gang",
    "test_identities",
    "test_standby_run",
)
WAITING_UNTIL = 0.8  # of the tests: what comes last is short, so that all workers end together


def pytest_configure(config: pytest.Config) -> None:
    """Shut the machine's own settings out, before anything is imported; processes that work for us inherit that."""
    # looking for garbage as often as Python does takes a tenth of the collection, and a third of tests that parse
    gc.set_threshold(20_000, 20, 20)
    settings.register_profile(
        "any machine", deadline=None
    )  # how long an example takes is the machine's affair
    settings.load_profile("any machine")
    if (
        signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    ):  # as in the background of a shell; tests press Ctrl-C
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # as below nohup; tests hang up
        signal.signal(signal.SIGHUP, signal.SIG_DFL)
    if not hasattr(config, "workerinput"):
        config.stash[HOME] = shut_out(os.environ)
        import messages

        if not messages.is_compiled():  # as in a new checkout, or after an update
            messages.compile_catalogue()


def pytest_collection_finish() -> None:
    """Look for no garbage in what was imported and collected."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure(config: pytest.Config) -> None:
    """Remove the home that only the tests had."""
    if HOME in config.stash:
        remove(config.stash[HOME])


@pytest.hookimpl(tryfirst=True)  # before `-m` chooses
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give every test its suite; spread files that wait for real nodes, the longest first, among those that compute."""
    for item in items:
        cost = cost_of(item)
        if not cost:
            raise pytest.UsageError(
                f"{item.nodeid} is marked as belonging to more than one of unit, process, lab"
            )
        item.add_marker(cost)
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    waiting = [path for path in files if path.parent.name == "lab" or path.stem in LONGEST]
    waiting.sort(key=lambda path: LONGEST.index(path.stem) if path.stem in LONGEST else len(LONGEST))
    others = [path for path in files if path not in waiting]
    places = {path: WAITING_UNTIL * place / len(waiting) for place, path in enumerate(waiting)}
    places.update({path: (place + 1) / len(others) for place, path in enumerate(others)})
    items[:] = chain.from_iterable(files[path] for path in sorted(files, key=places.__getitem__))


@dataclass
class Webhook:
    """A listener on loopback of the launching machine: its URL, and the bodies that came."""

    url: str = ""
    got: list[Any] = field(default_factory=list)


@pytest.fixture
def webhook() -> Iterator[Webhook]:
    """Take messages as a webhook does, from the start of the test to its end."""
    hook = Webhook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hook.url = f"http://127.0.0.1:{server.server_address[1]}/tok-12345678"
    yield hook
    server.shutdown()
    server.server_close()
