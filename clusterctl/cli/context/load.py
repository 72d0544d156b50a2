"""Find and read inventory and job; own directories, and the runs that this machine has seen."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import click
from platformdirs import user_state_path

from clusterctl.cli.context.settings import Settings
from clusterctl.client.local.private_files import (
    NotOursError,
    check_base,
    check_not_planted,
    check_private,
    read_own,
    write_once,
    write_own,
)
from clusterctl.console.terminal import info
from clusterctl.errors import SpecError, UsageError
from clusterctl.lab import labs
from clusterctl.node_texts import describe_system_error
from clusterctl.protocol.run_id import RunId, parse_run_id
from clusterctl.specs.text import command_line, find_nearest
from clusterctl.translation import tr, trn

if TYPE_CHECKING:
    from clusterctl.specs.inventory.model import Inventory
    from clusterctl.specs.job.model import Job

MAX_ID = 64  # characters


def state_dir() -> Path:
    """Return the user's state directory of clusterctl, made or not; `XDG_STATE_HOME` moves it.

    Raises UsageError if another user could have put files there: hooks that are run, inventories of labs.
    """
    folder = user_state_path("clusterctl", appauthor=False)
    _refuse_unsafe(folder)
    return folder


def lab_dir() -> Path:
    """Return the directory that holds all labs of this user; raises UsageError as `state_dir` does."""
    folder = state_dir() / "lab"
    _refuse_unsafe(folder)
    return folder


def crash_dir() -> Path:
    """Return the directory for reports of bugs, made or not; raises NotOursError where it is not safe to write."""
    folder = user_state_path("clusterctl", appauthor=False)
    _check(folder)
    return folder / "crashes"


def own_id() -> str:
    """Return the random id of this user on this machine, made at the first use; empty where none can be kept."""
    path = state_dir() / "id"
    with suppress(OSError, UnicodeDecodeError):
        if not path.exists():
            write_once(path, f"{secrets.token_hex(8)}\n")
        return read_own(path, MAX_ID + 1).decode("ascii").strip()
    return ""


def _check(folder: Path) -> None:
    check_base(folder.parent)
    check_private(folder)


def _refuse_unsafe(folder: Path) -> None:
    try:
        _check(folder)
    except NotOursError as error:
        raise UsageError("CC-USE-041", path=error.filename, reason=error.strerror) from error
    except OSError:
        pass  # not readable: nothing in it is used, and writing reports why it fails


MAX_FILE = 256 << 10  # as `specs.yaml.reader` has it, which is not imported for a file that is remembered


@dataclass(frozen=True)
class ChosenInventory:
    """An inventory file, why it is the one, and how the cluster is called in a question.

    `hosts` are machines that were given in place of a file; a file that is not `named` was found in this directory.
    """

    path: Path
    reason: str
    lab: str | None = None
    named: bool = True
    hosts: str | None = None

    @property
    def label(self) -> str:
        """Name the lab, the hosts, else the file."""
        if self.lab is not None:
            return tr("lab {name}", name=self.lab)
        if self.hosts is not None:
            return tr("hosts {hosts}", hosts=self.hosts)
        return tr("inventory {path}", path=self.path)


def load_inventory(settings: Settings, *, on_slurm: bool = False) -> Inventory:
    """Read the inventory that the options, the environment, the running lab or this directory give.

    Raises UsageError for one of a Slurm cluster, unless the verb works there (`on_slurm`).
    """
    inventory = load_chosen_inventory(settings)[0]
    if not on_slurm:
        refuse_on_slurm(inventory, _verb_in_use())
    return inventory


def _verb_in_use() -> str:
    """Name the verb that was typed, such as `lab up`."""
    names: list[str] = []
    context = click.get_current_context(silent=True)
    while context is not None and context.parent is not None:
        names.insert(0, str(context.info_name))
        context = context.parent
    return " ".join(names)


def refuse_on_slurm(inventory: Inventory, verb: str) -> None:
    """Raise UsageError if the inventory is that of a Slurm cluster, where this verb cannot work."""
    if inventory.slurm is not None:
        raise UsageError("CC-SLURM-007", verb=verb, file=inventory.file)


def load_chosen_inventory(settings: Settings) -> tuple[Inventory, ChosenInventory]:
    """Read the inventory and give the choice of the file."""
    from clusterctl.specs.inventory.model import name_cluster

    chosen = choose_inventory(settings)
    if not chosen.named:
        _refuse_planted(chosen.path)
    text, file = _read_inventory(chosen)
    inventory = name_cluster(_parse_inventory(text, file), chosen.path.absolute().parent.name)
    if not chosen.named:
        _refuse_planted_configs(inventory)
        return inventory, chosen
    info(
        trn(
            "inventory: {path} ({reason}), {n} node",
            "inventory: {path} ({reason}), {n} nodes",
            len(inventory.nodes),
            path=file if chosen.lab is None else chosen.label,
            reason=chosen.reason,
        )
    )
    return inventory, chosen


def _read_inventory(chosen: ChosenInventory) -> tuple[str, str]:
    """Read the text of the inventory and how messages call its file; hosts are written as one."""
    if chosen.hosts is None:
        return read_spec(chosen.path), str(chosen.path)
    from clusterctl.specs.render import render_hosts

    return render_hosts(chosen.hosts), chosen.hosts


def _refuse_planted_configs(inventory: Inventory) -> None:
    """Refuse SSH configurations of this directory that another account could have written."""
    configs = {node.ssh.config for node in inventory.nodes if node.ssh.config not in (None, "none")}
    for config in sorted(filter(None, configs)):
        if not expand(config).is_absolute():
            _refuse_planted(Path(config))


def _refuse_planted(file: Path) -> None:
    """Raise UsageError if another account could have written a file that is used without being named."""
    try:
        check_not_planted(file.absolute())
    except NotOursError as error:
        raise UsageError("CC-USE-042", file=file, path=error.filename, reason=error.strerror) from error


def expand(path: str) -> Path:
    """Expand a leading `~`."""
    try:
        return Path(path).expanduser()
    except RuntimeError as error:  # ~nobody-of-that-name
        raise UsageError("CC-SPEC-007", "home", path=path, reason=error) from error


def choose_inventory(settings: Settings) -> ChosenInventory:
    """Pick the inventory: `-i`, `--lab` or `--hosts`, CLUSTERCTL_INVENTORY, ./inventory.yaml, the running lab."""
    if settings.inventory is not None:
        return _inventory_at(settings.inventory, tr("given by {option}", option="-i"))
    if settings.lab is not None:
        return _lab_inventory(settings.lab, tr("given by {option}", option="--lab"))
    if settings.hosts is not None:
        return ChosenInventory(LOCAL_FILE, tr("given by {option}", option="--hosts"), hosts=settings.hosts)
    if os.environ.get("CLUSTERCTL_INVENTORY"):
        return _inventory_at(os.environ["CLUSTERCTL_INVENTORY"], "CLUSTERCTL_INVENTORY")
    if LOCAL_FILE.exists():
        return ChosenInventory(LOCAL_FILE, "", named=False)
    running = labs.list_running(lab_dir()) if lab_dir().is_dir() else []
    chosen = _default_lab(running)
    if chosen is not None:
        return chosen
    if running:
        raise UsageError(
            "CC-USE-002",
            "labs",
            count=len(running),
            names=", ".join(lab.name for lab in running),
            command=command_line("clusterctl", "--lab", running[0].name, "ps"),
        )
    raise _no_inventory()


LOCAL_FILE = Path("inventory.yaml")


def _no_inventory() -> UsageError:
    """Point to a file with another ending where one is there, else to `init`."""
    other = next(
        (path for path in (Path("inventory.yml"), Path("inventory.yaml.txt")) if path.exists()), None
    )
    return UsageError("CC-USE-002", "near", file=other) if other is not None else UsageError("CC-USE-002")


def is_local_file_used() -> bool:
    """Return whether ./inventory.yaml is used where it exists: CLUSTERCTL_INVENTORY takes precedence over it."""
    return not os.environ.get("CLUSTERCTL_INVENTORY")


def _inventory_at(text: str, reason: str) -> ChosenInventory:
    path = _file_in(expand(text), "inventory.yaml")
    in_lab_dir = path.name == "inventory.yaml" and path.parent.parent == lab_dir()
    return ChosenInventory(path, reason, path.parent.name if in_lab_dir else None)


def _default_lab(running: Sequence[labs.Lab]) -> ChosenInventory | None:
    """Take the only lab, or the one called `lab`; then the others are named, and how to choose."""
    lab = labs.default_lab(running) if running else None
    if lab is None:
        return None
    others = ", ".join(other.name for other in running if other is not lab)
    reason = (
        tr("also running: {others}; select with --lab NAME", others=others)
        if others
        else tr("the running lab")
    )
    return ChosenInventory(lab.inventory, reason, lab.name)


def _lab_inventory(name: str, reason: str) -> ChosenInventory:
    return ChosenInventory(labs.load(lab_dir(), name).inventory, reason, name)


LOCAL_JOB = Path("job.yaml")


def is_script(path: str | None) -> bool:
    """Return whether a word in place of a job file is a Python script."""
    return path is not None and path.endswith(".py")


def load_job(path: str | None, overrides: Sequence[str], more_args: Sequence[str]) -> Job:
    """Read a job file, without one ./job.yaml; apply `--set KEY=VALUE` and what follows `--`."""
    file = _find_local_job() if path is None else _file_in(Path(path), "job.yaml")
    if path is None or file != Path(path):
        path = str(file)
        info(tr("job: {path}", path=path))
    job = _parse_job(read_spec(file), path, parse_settings(overrides))
    return replace(job, args=(*job.args, *more_args))


def _find_local_job() -> Path:
    if not LOCAL_JOB.is_file():
        raise UsageError("CC-USE-009")
    _refuse_planted(LOCAL_JOB)  # its hooks run on this machine
    return LOCAL_JOB


def _file_in(path: Path, name: str) -> Path:
    """Take the file of the usual name where a directory is given."""
    if not path.is_dir():
        return path
    if not (path / name).is_file():
        raise UsageError("CC-SPEC-007", "directory", path=path, name=name)
    return path / name


def checks_dir() -> Path:
    """Return where checks that passed a moment ago are kept."""
    return state_dir() / "checks"


def _parse_inventory(text: str, file: str) -> Inventory:
    from clusterctl.specs.inventory.parse import parse_inventory

    with _showing_lines(text, file):
        return parse_inventory(text, file)


def _parse_job(text: str, file: str, overrides: Sequence[tuple[str, str]] = ()) -> Job:
    from clusterctl.specs.job.parse import parse_job

    with _showing_lines(text, file):
        return parse_job(text, file, overrides)


@contextmanager
def _showing_lines(text: str, file: str) -> Iterator[None]:
    """Add the text of the file to an error, so that its lines are shown."""
    try:
        yield
    except SpecError as error:
        with suppress(OSError):  # hosts that stand for a file have a name that is none
            if Path(file).is_file():
                error.texts[file] = text
        raise


def parse_settings(overrides: Sequence[str]) -> list[tuple[str, str]]:
    """Read the values of `--set KEY=VALUE`."""
    return [_parse_override(override) for override in overrides]


def _parse_override(override: str) -> tuple[str, str]:
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise UsageError("CC-USE-003", override=override)
    return key, value


def read_spec(path: Path, max_bytes: int = MAX_FILE) -> str:
    """Read a YAML file as text; every way in which that can fail is a clear error."""
    try:
        raw = _read_bounded(path, max_bytes)
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise UsageError("CC-SPEC-002", "file", path=path, line=line) from error
    except OSError as error:
        guess = _nearest_file(path) if isinstance(error, FileNotFoundError) else ""
        case = "near" if guess else ""
        raise UsageError(
            "CC-SPEC-007", case, path=path, reason=describe_system_error(error), guess=guess
        ) from error


def _nearest_file(path: Path) -> str:
    """Name the file whose name is most like one that does not exist; empty without such a file."""
    with suppress(OSError):
        found = find_nearest(
            path.name, sorted(entry.name for entry in path.parent.iterdir() if entry.is_file())
        )
        return str(path.with_name(found)) if found else ""
    return ""


def _read_bounded(path: Path, max_bytes: int) -> bytes:
    with path.open("rb") as file:
        raw = file.read(max_bytes + 1)
    if len(raw) > max_bytes:
        raise UsageError("CC-SPEC-003", "file", path=path, kib=max_bytes >> 10)
    return raw


MAX_RUNS = 200
MAX_BYTES = 64 << 10
FILE_NAME = "known_runs"  # one run id a line, newest first


def known_runs() -> list[RunId]:
    """Read the runs, newest first; none where the file is missing, damaged or not ours."""
    with suppress(OSError, UsageError, UnicodeDecodeError):
        lines = read_own(state_dir() / FILE_NAME, MAX_BYTES).decode("ascii").splitlines()
        return [run_id for run_id in map(parse_run_id, lines) if run_id is not None]
    return []


def remember_runs(run_ids: Iterable[RunId]) -> None:
    """Add runs; where nothing can be written there is only nothing to complete."""
    known = known_runs()
    runs = sorted({*known, *run_ids}, key=_start_time, reverse=True)[:MAX_RUNS]
    if runs != known:
        with suppress(OSError, UsageError):
            write_own(state_dir() / FILE_NAME, "".join(f"{run_id}\n" for run_id in runs))


def _start_time(run_id: RunId) -> tuple[str, str]:
    return run_id.rsplit("-", 2)[1], run_id
