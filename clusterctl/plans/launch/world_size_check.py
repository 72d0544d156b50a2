"""What a job's code shows before the start: whether several nodes find each other, and Python the module.

Also which WORLD_SIZE the workers saw that a job has started itself.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, cast

from clusterctl.codes.lookup import word
from clusterctl.protocol.untrusted import Untrusted
from clusterctl.specs.job.model import Job
from clusterctl.specs.nodeset import fold_names
from clusterctl.specs.placeholders import Placeholder, parse_template
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import JournalEvent

LARGEST_SCRIPT = 256 << 10  # bytes
NODE_PLACEHOLDERS = frozenset({"node_rank", "nnodes", "master_addr", "master_port", "world_size"})

# A program that reads one of these can distinguish the nodes, or find the first of them.
_READ = re.compile(
    r"\b(MASTER_ADDR|MASTER_PORT|NODE_RANK|NNODES|WORLD_SIZE|RANK|HOSTNAME|hostname|gethostname|uname"
    r"|CLUSTERCTL_(?!OUTPUT_DIR|PYTHON|RUN_ID|ATTEMPT)\w+)\b"
)
# Setting one is not reading it: os.environ["MASTER_ADDR"] = "localhost", export MASTER_ADDR=localhost.
_SET = re.compile(
    r"""environ\[\s*(["'])\w+\1\s*\]\s*=(?!=)|environ\.setdefault\(\s*(["'])\w+\2|^\s*(export\s+)?\w+=""",
    re.M,
)


def list_scripts(job: Job, paths: Collection[str]) -> tuple[str, ...]:
    """Name the files among the code that a job runs, as far as its words show."""
    words = [*job.command, *job.args, job.script or ""]
    if job.module:
        module = job.module.replace(".", "/")
        words += [f"{module}.py", f"{module}/__main__.py"]
    paths_in_words = (posixpath.normpath(word) for word in words if word)
    return tuple(dict.fromkeys(path for path in paths_in_words if path in paths))


NESTED_LAUNCHERS = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "torch.distributed.run",
    "torch.distributed.launch",
)


def describe_unaware(job: Job, nnodes: int, scripts: Mapping[str, str]) -> str:
    """Say that nothing shows how the processes of several nodes find each other; empty if something does.

    `scripts` are the texts of the files that are run. Below a launcher of the command's own they prove nothing:
    their RANK is that launcher's. Other programs without a script may read our variables.
    """
    launchers = [word for word in job.command if posixpath.basename(word) in NESTED_LAUNCHERS]
    if not job.is_single_process or job.runs_on_head or nnodes < 2 or not (scripts or launchers):
        return ""
    if launchers:
        names = ", ".join(launchers[:1])
        texts: tuple[str, ...] = ()
    else:
        names, texts = ", ".join(scripts), tuple(scripts.values())
    words = (*job.command, *job.args, *job.env.values())
    placeholders = {
        piece.name for word in words for piece in parse_template(word) if isinstance(piece, Placeholder)
    }
    if placeholders & NODE_PLACEHOLDERS or any(_READ.search(_SET.sub("", text)) for text in (*words, *texts)):
        return ""
    return _render_warning("CC-RUN-050", nodes=nnodes, scripts=names)


def describe_src_layout(job: Job, paths: Collection[str]) -> str:
    """Say that the job's module is below src/, which is not on Python's path; empty if it is not."""
    if job.module is None or "PYTHONPATH" in job.env:
        return ""
    module = job.module.replace(".", "/")
    files = (f"{module}.py", f"{module}/__main__.py")
    found = [f"src/{file}" for file in files if f"src/{file}" in paths]
    if not found or any(file in paths for file in files):
        return ""
    return _render_warning("CC-RUN-052", module=job.module, path=found[0])


def _render_warning(code: str, **facts: object) -> str:
    message, fix = word(code, "", facts)
    return tr("{code}: {text}; {fix}", code=code, text=message, fix=fix)


def describe_world_event(event: Untrusted) -> str:
    """Say that processes of a node were started with another WORLD_SIZE; nothing for any other event."""
    observed, planned = event.integer("seen", 0), event.integer("planned", 0)
    if cast("JournalEvent", event.text("event", 40)) != "world_size" or observed is None or planned is None:
        return ""
    return describe_unplanned(observed, planned)


def describe_unplanned(observed: int, planned: int) -> str:
    """Say what was seen and what it means."""
    return _render_warning("CC-RUN-051", observed=observed, planned=planned)


def render_unplanned(world_sizes: Mapping[str, tuple[int, int]]) -> list[str]:
    """Say it of a run that has ended; `world_sizes` are what was seen and what was planned, by node."""
    groups: dict[tuple[int, int], list[str]] = {}
    for name, pair in world_sizes.items():
        groups.setdefault(pair, []).append(name)
    return [f"{fold_names(names)}: {describe_unplanned(*pair)}" for pair, names in groups.items()]
