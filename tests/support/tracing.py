"""What an agent records and reports, in its order: journal, state.json and events to the client, with all that varies
replaced by names. A payload for the tests writes the trace; the code of the product is as it is."""

from __future__ import annotations

import io
import json
import re
import sys
import zipfile
from functools import cache
from typing import Any

from noderun import NodeRun, payload_zip

# Runs before the payload's own main: `Record` and `Stream` also write down what they are given.
MAIN = """
import json, os, sys
from clusterctl.node.runtime import processes, stream
from clusterctl.node.state import run_record

TRACES = []

def trace(kind, name, facts):
    line = json.dumps([kind, name, facts]).encode("utf-8") + b"\\n"
    if TRACES:
        descriptor = os.open(TRACES[0], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, line)
        os.close(descriptor)

class Record(run_record.Record):
    def __init__(self, rundir, state):
        super().__init__(rundir, state)
        TRACES[:] = [os.path.join(rundir, "trace.jsonl")]

    def set(self, values):
        trace("state", "", values)
        super().set(values)

    def add_event(self, event, facts=None):
        trace("journal", event, facts or {})
        super().add_event(event, facts)

    def save_gang_record(self, record):
        trace("record", "", {"whole": record["whole"], "parts": record["parts"]})
        super().save_gang_record(record)

send = stream.Stream.send

def traced_send(self, header, *rest):
    if TRACES and isinstance(header, dict) and "event" in header:
        trace("client", header["event"], {key: header[key] for key in header if key != "event"})
    return send(self, header, *rest)

run_record.Record = Record
stream.Stream.send = traced_send

immortal = os.environ.get("TEST_IMMORTAL")
if immortal:
    processes.UNKILLABLE_AFTER = 0.5
    send_signal = processes.send_signal

    def refuse(identity, number):
        stat = processes.find_process(identity)
        return False if stat is not None and stat.name == immortal else send_signal(identity, number)

    processes.send_signal = refuse

from clusterctl.node.main import main
main()
"""
TIMES = 1e9  # a number beyond is a moment
# Another test on this machine may hold a lock for a moment: that is no matter of this run.
LOCKS = re.compile(
    r'journal (busy|locked)\b|client locks|state {"reason": "(waits for (?!the other)|spare")'
    r'|state {"reason": "", "state": "(PREPARING|WAITING)"'
)
# The clocks of the other nodes are recorded once four beats have been answered, if the run lasts as long.
CLOCKS = re.compile(r'state {"clocks": {[^}]*}}$')
NUMBERS = ("pid", "starttime", "port", "agent")


# Writes down, for each message, which functions of the product have called each other, the loop's left out.
CALLERS = """
import os, sys
from clusterctl.node.runtime import connections, event_loop
from clusterctl.node.state import run_record

send, loop, rundirs = connections.LineSocket.send, event_loop.run_in_thread.__code__.co_filename, []

class Record(run_record.Record):
    def __init__(self, rundir, state):
        super().__init__(rundir, state)
        rundirs.append(rundir)

def traced_send(self, data=b""):
    calls, frame = ["send"], sys._getframe(1)
    while frame is not None and frame.f_code.co_filename != loop:
        calls.append(frame.f_code.co_name)
        frame = frame.f_back
    descriptor = os.open(rundirs[0] + "/callers", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(descriptor, " ".join(reversed(calls)).encode() + b"\\n")
    os.close(descriptor)
    return send(self, data)

connections.LineSocket.send = traced_send
run_record.Record = Record

from clusterctl.node.main import main
main()
"""


@cache
def traced_zip(main: str = MAIN) -> bytes:
    """Build the payload that traces."""
    content = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(payload_zip())) as plain, zipfile.ZipFile(content, "w") as archive:
        for entry in plain.infolist():
            archive.writestr(entry, main if entry.filename == "__main__.py" else plain.read(entry))
    return content.getvalue()


def traced(run: NodeRun, main: str = MAIN) -> NodeRun:
    """Let a run that has not begun be traced."""
    run.zip = traced_zip(main)
    run.provide_payload()
    return run


def read_trace(run: NodeRun) -> list[str]:
    """Read what the agent, and perhaps the guardian after it, has recorded and reported, a line each."""
    names = {str(run.root.parent): "TMP", run.spec["run"]: "RUN", sys.executable: "PYTHON"}
    lines = (run.rundir / "trace.jsonl").read_text().splitlines()
    entries = [render(kind, name, facts, names) for kind, name, facts in map(json.loads, lines)]
    return [entry for entry in entries if not LOCKS.match(entry) and not CLOCKS.match(entry)]


def render(kind: str, name: str, facts: dict[str, Any], names: dict[str, str]) -> str:
    """Render one entry; the order of a state's keys does not count, that of a message's does."""
    text = json.dumps(normalize(facts, names), sort_keys=kind == "state", ensure_ascii=False)
    return " ".join(filter(None, (kind, name, text)))


def normalize(value: Any, names: dict[str, str], key: str = "") -> Any:
    """Replace what differs from run to run: moments, pids, ports, paths."""
    if isinstance(value, dict):
        return {name: normalize(entry, names, name) for name, entry in value.items()}
    if key == "ended" and isinstance(value, list):
        return sorted({entry["name"] for entry in value})
    if isinstance(value, list):
        return [normalize(entry, names, key) for entry in value]
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return "N" if key in NUMBERS else "T" if value > TIMES or key == "seconds" else value
    if isinstance(value, str):
        for text, short in names.items():
            value = value.replace(text, short)
        return re.sub(r"(127\.0\.0\.\d+):\d+", r"\1:PORT", value)
    return value


def split(trace: list[str], any_time: re.Pattern[str]) -> tuple[list[str], list[str]]:
    """Split a trace into what has an order, and, sorted, what may come at any time."""
    free = sorted(set(filter(any_time.match, trace)))
    return [line for line in trace if line not in free], free
