"""The verb `history`: what this node has on record of a run, in few frames of bounded size.

request {"since": seconds or null, "points": n, "details": bool, ...}
node    {"history": {...}} and the samples in the body, see node/history/ring.py; with `details` then
        {"journal": bytes} and the end of events.jsonl in the body,
        {"launched": {...}}, of node 0 with `code` also {"code": bytes} and the rows of the sent tree in the body,
        {"collectives": bytes} and these in the body, {"output": {...}},
        {"scalars": [...], "progress": {...} or null, "cut": bool};
        with `speed` neither journal nor output, and scalars only of rank 0
"""

from __future__ import annotations

import json
import math
import os
import time
import zlib
from typing import TYPE_CHECKING, Any, Dict, List, Mapping, Union

from ...protocol.run_paths import RunPaths
from ..history.ring import INTERVAL, pack, read_samples, thin
from ..history.scalars import (
    MAX_EVENT_BYTES,
    TIME_LIMIT,
    LogScalars,
    Scalar,
    compile_patterns,
    find_event_files,
    log_files,
    read_event_file,
    thin_scalars,
)
from ..logs.log_file import NotALogError, check_log, read_tail
from ..runtime.stream import Stream
from ..runtime.time_limit import TooSlowError, time_limit
from ..state.run_files import find_run, read_spec
from ..state.run_record import resolve_state
from ..state.workdir import read_bytes

if TYPE_CHECKING:
    from ...protocol.messages.evidence import (
        LaunchedWith,
        RankOutput,
        ReplacedLogRecord,
        ScalarSeries,
        ScalarsFrame,
    )
    from ...protocol.messages.files import Hole, Spec, State
    from ...protocol.messages.verbs import HistoryRequest

MAX_POINTS = 2000
MAX_VALUES = 240_000  # numbers in an answer: below a MiB
MAX_JOURNAL = 256 << 10  # bytes
MAX_CODE = 1 << 20  # bytes, packed: some ten thousand files
MAX_COLLECTIVES, MAX_BODY = 8 << 20, 1 << 20  # bytes, and of these compressed
SPEED_LIMIT = 1.0  # seconds for all logs: the end of a run waits for `speed`
TAIL_BYTES, MAX_LINE = 6 << 10, 400
MAX_RANKS = 64
MAX_WORDS, MAX_WORD, MAX_VARIABLES = 400, 2000, 200
SECRET_NAMES = (
    "TOKEN",
    "SECRET",
    "PASSW",
    "CREDENTIAL",
    "API_KEY",
    "APIKEY",
    "PRIVATE",
    "ACCESS_KEY",
    "AUTH",
)
HIDDEN = "[secret]"
# What the job's file decides, and `argv` and `env` do not show.
JOB_KEYS = (
    *(
        "nproc",
        "processes",
        "exclusive",
        "time_limit",
        "grace",
        "log_limit",
        "zombie_after",
        "stall",
        "alone",
    ),
    *(
        "diagnose",
        "debug",
        "start",
        "restart",
        "ray",
        "mpi",
        "ends_with",
        "metrics",
        "setup",
        "before",
        "after",
    ),
)


def run(request: HistoryRequest, stream: Stream) -> None:
    """Answer, and end."""
    rundir = find_run(request["workdir"], request["run"], request["node"])
    _send_samples(rundir, request, stream)
    state, spec = resolve_state(rundir), read_spec(rundir)
    details, speed = request["details"], request["speed"]
    if not (details or speed) or state is None or spec is None:
        return
    if details:
        journal = read_tail(RunPaths(rundir).events, MAX_JOURNAL).encode("utf-8", "replace")
        stream.answer({"journal": len(journal)}, journal)
    stream.answer({"launched": describe_launch(spec)})
    if request["code"] and spec["node_rank"] == 0:
        packed = read_bytes(RunPaths(rundir).manifest) or b""
        if len(packed) <= MAX_CODE:
            stream.answer({"code": len(packed)}, packed)
    _send_collectives(rundir, state, stream)
    if details:
        output = read_output(rundir, state, request["lines"])
        stream.answer({"output": output, "replaced": find_replaced(rundir, state)})
    points = max(2, min(request["points"], MAX_POINTS))
    limit = TIME_LIMIT if details else SPEED_LIMIT
    if details or "0" in state["ranks"]:
        stream.answer(read_all_scalars(rundir, state, spec, points, limit))
    else:
        stream.answer({"scalars": [], "progress": None, "cut": False})


def _send_collectives(rundir: str, state: State, stream: Stream) -> None:
    """Send what the agent has kept of the last attempt's collectives; nothing of what does not fit into a frame."""
    path = os.path.join(RunPaths(rundir).attempt(state["attempt"]), "collectives.json")
    try:
        with open(path, "rb") as source:
            content = source.read(MAX_COLLECTIVES + 1)
    except OSError:
        return
    body = zlib.compress(content, 6)
    if len(content) <= MAX_COLLECTIVES and len(body) <= MAX_BODY:
        stream.answer({"collectives": len(content)}, body)


def _send_samples(rundir: str, request: HistoryRequest, stream: Stream) -> None:
    now = time.time()
    since = request["since"]
    found = read_samples(RunPaths(rundir).samples, 0.0 if since is None else now - since, now + INTERVAL)
    begin = min((samples.records[0][0] for samples in found), default=now)
    end = max((samples.records[-1][0] for samples in found), default=now)
    columns = max(1, len({column for samples in found for column in samples.columns}))
    points = max(2, min(request["points"], MAX_POINTS, MAX_VALUES // columns))
    thinned = thin(found, begin, end + INTERVAL, points)
    header: Any = {
        "columns": [list(column) for column in thinned.columns],
        "about": thinned.about,
        "width": thinned.width,
        "rows": len(thinned.rows),
        "time": now,
    }
    stream.answer({"history": header}, zlib.compress(pack(thinned), 6))


def describe_launch(spec: Spec) -> LaunchedWith:
    """Return what was started: command, variables, addresses; a variable that is named like a secret has no value."""
    return {
        "argv": [_render(word) for word in spec["argv"][:MAX_WORDS]],
        "module": spec["module"],
        "python": spec["python"],
        "env": {
            name[:MAX_WORD]: HIDDEN if _is_secret(name) else _render(value)
            for name, value in list(spec["env"].items())[:MAX_VARIABLES]
        },
        "nic": spec["nic"],
        "address": spec["address"],
        "nproc": spec["nproc"],
        "gpus": [gpu["index"] for gpu in spec["gpus"]],
        "about": spec.get("about", {}),
        "job": {key: _render_key(spec, key) for key in JOB_KEYS if spec.get(key)},
    }


def _render_key(spec: Mapping[str, Any], key: str) -> str:
    """Write a key of the job as it was launched: of commands their texts, of an environment its hash."""
    value = spec[key]
    if key in ("before", "after"):
        return "; ".join(step["shown"] for step in value["steps"])[:MAX_WORD]
    value = value["content"][:16] if key == "setup" else value
    return (value if isinstance(value, str) else json.dumps(value))[:MAX_WORD]


def _is_secret(name: str) -> bool:
    return any(part in name.upper() for part in SECRET_NAMES)


def _render(template: Any) -> str:
    """Write a text with what only the agent knew as <name>."""
    if isinstance(template, str):
        return template[:MAX_WORD]
    parts: List[Union[str, Hole]] = template if isinstance(template, list) else []
    return "".join(
        part if isinstance(part, str) else "<%s>" % part.get("fill", "?") if isinstance(part, dict) else ""
        for part in parts
    )[:MAX_WORD]


def read_output(rundir: str, state: State, lines: int) -> Dict[str, RankOutput]:
    """Return the last lines of each rank."""
    ranks = sorted((int(rank), entry) for rank, entry in state["ranks"].items())[:MAX_RANKS]
    return {
        str(rank): {
            "stdout": _tail(rundir, entry["stdout"], lines),
            "stderr": _tail(rundir, entry["stderr"], lines),
        }
        for rank, entry in ranks
    }


def find_replaced(rundir: str, state: State) -> List[ReplacedLogRecord]:
    """Name the logs of ranks that are no files any more, and what each is."""
    found: Dict[str, str] = {}
    entries = list(state["ranks"].values())[:MAX_RANKS]
    for file in [file for entry in entries for file in (entry["stdout"], entry["stderr"]) if file]:
        try:
            check_log(os.lstat(os.path.join(rundir, file)))
        except NotALogError as error:
            found[file] = error.kind
        except OSError:
            continue
    return [{"log": file, "replaced_by": kind} for file, kind in found.items()]


def _tail(rundir: str, file: Any, lines: int) -> List[str]:
    if not file or lines <= 0:
        return []
    text = read_tail(os.path.join(rundir, file), TAIL_BYTES)
    kept = [line.rpartition("\r")[2] for line in text.replace("\r\n", "\n").split("\n")]
    return [line[:MAX_LINE] for line in kept if line.strip()][-lines:]


def read_all_scalars(
    rundir: str, state: State, spec: Spec, points: int, limit: float = TIME_LIMIT
) -> ScalarsFrame:
    """Read the numbers that ranks have printed, and those of TensorBoard; `cut` if not all could be read in time."""
    attempts: List[Mapping[str, Any]] = [attempt["ranks"] for attempt in state.get("attempts") or []]
    found, events = LogScalars(compile_patterns(spec.get("metrics") or {})), {}
    try:
        with time_limit(limit):
            events = _read_events(rundir, spec)
            for file in log_files(rundir, [*attempts, state["ranks"]]):
                try:
                    found.read(file)
                except OSError:
                    continue
    except TooSlowError:
        found.cut = True
    series = [_series(name, "log", values, points) for name, values in found.values.items()]
    series += [_series(name, "tensorboard", values, points) for name, values in events.items()]
    return {"scalars": series, "progress": found.progress, "cut": found.cut}


def _read_events(rundir: str, spec: Spec) -> Dict[str, List[Scalar]]:
    values: Dict[str, List[Scalar]] = {}
    code = RunPaths(rundir).code
    folders = [spec["output_dir"], *(os.path.join(code, name) for name in ("runs", "lightning_logs", "logs"))]
    began = spec.get("submitted") or 0.0
    for file in find_event_files(folders):
        try:
            with open(file, "rb") as source:
                found = (
                    read_event_file(source.read(MAX_EVENT_BYTES))
                    if os.fstat(source.fileno()).st_mtime >= began
                    else {}
                )
        except OSError:
            continue
        for tag, scalars in found.items():
            values.setdefault(tag, []).extend(one for one in scalars if one.time >= began)
    return {tag: sorted(found) for tag, found in values.items() if found}


def _series(name: str, source: str, values: List[Scalar], points: int) -> ScalarSeries:
    kept = thin_scalars(values, points)
    rows = [_point(one) for one in kept]
    return {"name": name, "source": source, "count": len(values), "points": rows}


def _point(one: Scalar) -> List[Any]:
    point = [one.time, one.step, one.value if math.isfinite(one.value) else None]
    return point if one.epoch is None else [*point, round(one.epoch, 4)]
