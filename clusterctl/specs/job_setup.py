"""What a job needs on its nodes before it runs: an environment from a lock file, and commands around each attempt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Annotated

from pydantic import ConfigDict, Field

from clusterctl.errors import Issue
from clusterctl.specs import codes, values
from clusterctl.specs.bad_value import BadValueError
from clusterctl.specs.entry import FLAG, Entry
from clusterctl.specs.job import Hook, Kind, Setup
from clusterctl.specs.leaf import Leaf, OneOrMore
from clusterctl.specs.tree import Table, quoted

KINDS = ("venv", "uv", "conda")
_DURATION = {"type": ["string", "number"], "pattern": f"^{values.DURATION_PATTERN}$", "minLength": 1}
_PATH = {"type": "string", "minLength": 1}
_COMMAND = {"type": "string", "minLength": 1}


def _parse_beside(text: str) -> str:
    path = PurePosixPath(values.parse_text(text))
    if path.is_absolute() or text.startswith(("~", "-")) or ".." in path.parts or not path.parts:
        fix = "a path beside or below the job file; a folder there may be a link"
        raise BadValueError(f"{quoted(text)} is not beside the job file", fix)
    return path.as_posix()


Beside = Annotated[str, Leaf("a path", _parse_beside, _PATH)]
MaybeBeside = Annotated[str | None, Leaf("a path", _parse_beside, _PATH, null=True)]
Command = Annotated[str, Leaf("a command", values.parse_text, _COMMAND)]
MaybeCommands = Annotated[tuple[Command, ...] | None, OneOrMore(_COMMAND)]
Commands = Annotated[tuple[Command, ...], OneOrMore(_COMMAND)]
Flag = Annotated[bool, FLAG]
Limit = Annotated[float, Leaf("a time", values.parse_limit, {**_DURATION, "minimum": 0})]


class SetupEntry(Entry):
    """What is made on every node before the job starts, once for the same content."""

    model_config = ConfigDict(title="setup")

    venv: MaybeBeside = Field(
        None, description="Make a venv, and install by pip what this requirements file names."
    )
    uv: MaybeBeside = Field(
        None,
        description="Make it with uv: from a `uv.lock`, its `pyproject.toml` beside it, or a requirements file.",
    )
    conda: MaybeBeside = Field(
        None,
        description="Make a conda environment from an `environment.yml` or an explicit lock file, with micromamba, "
        "mamba or conda, whichever the node has.",
    )
    wheelhouse: MaybeBeside = Field(
        None,
        description="Folder of wheels that is sent along; `venv` and `uv` then install from it alone, with no network.",
    )
    system_site_packages: Flag = Field(
        False, description="Let the environment see the packages of the node's own Python, such as its torch."
    )
    files: tuple[Beside, ...] = Field(
        (), description="More files and folders beside the job that `run` needs; they count as content."
    )
    run: MaybeCommands = Field(
        None,
        description="Shell commands to run then, in the environment; the first that fails ends the launch.",
    )
    time_limit: Limit = Field(1800.0, description="How long all of it may take on a node.")


class HookEntry(Entry):
    """Shell commands on every node, once for each attempt."""

    model_config = ConfigDict(title="before and after")

    run: Commands = Field(
        description="Shell commands, run one after the other in the run's copy of the code, with the job's environment."
    )
    time_limit: Limit = Field(60.0, description="How long they may take together; then they are ended.")


def setup_of(entry: SetupEntry | None) -> Setup | None:
    """Give what a job wants made, if anything."""
    if entry is None:
        return None
    locks: dict[Kind, str | None] = {"venv": entry.venv, "uv": entry.uv, "conda": entry.conda}
    kind, lock = next(((kind, lock) for kind, lock in locks.items() if lock), (None, ""))
    return Setup(
        kind=kind,
        lock=lock or "",
        wheelhouse=entry.wheelhouse,
        system_site_packages=entry.system_site_packages,
        files=entry.files,
        run=entry.run or (),
        time_limit=entry.time_limit,
    )


def hook_of(entry: HookEntry | None) -> Hook | None:
    """Give the commands of `before` or `after`, if the job has them."""
    return Hook(run=entry.run, time_limit=entry.time_limit) if entry else None


def setup_issues(tree: Table) -> Iterator[Issue]:
    """Yield what is wrong with these keys together."""
    setup = tree.get("setup")
    if isinstance(setup, Table):
        yield from _setup_issues(setup)


def _setup_issues(setup: Table) -> Iterator[Issue]:
    kinds = [key for kind in KINDS if (key := setup.key(kind))]
    misspelled = setup.entries.keys() - SetupEntry.model_fields.keys()  # one of these, and told as that
    if not kinds and not setup.key("run") and not misspelled:
        fix = "such as setup: {venv: requirements.txt}, or run: for shell commands alone"
        yield Issue(codes.MISSING_KEY, "setup: neither venv nor uv nor conda nor run", setup.place, fix)
    for key in kinds[1:]:
        message = f"setup: one of venv, uv and conda, not both; the {kinds[0].text} is at {kinds[0].place}"
        yield Issue(codes.SETUP, message, key.place, "drop one of them")
    if kinds and kinds[0].text != "conda":
        return
    for name in ("wheelhouse", "system_site_packages"):
        if key := setup.key(name):
            fix = "drop it, or use venv or uv" if kinds else "add venv: requirements.txt, or drop it"
            yield Issue(codes.SETUP, f"setup.{name} is for venv and uv", key.place, fix)
