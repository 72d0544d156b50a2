"""The code that a job sends: scanned before any connection, so that a wrong path fails at once."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from clusterctl.cli.context.load import expand, state_dir
from clusterctl.cli.context.nodes import notice
from clusterctl.console.progress import HashProgress
from clusterctl.console.text import make_visible
from clusterctl.errors import UsageError
from clusterctl.interrupts import INTERRUPTS
from clusterctl.translation import tr

if TYPE_CHECKING:
    from clusterctl.client.launch.setup import SetupFiles
    from clusterctl.client.sync.scan import ScanResult
    from clusterctl.plans.launch.script import JobCode
    from clusterctl.specs.job.model import Job


def read_job_setup(job: Job) -> SetupFiles | None:
    """Read and hash what the job's `setup` sends along, if it has one; its folder is the job file's."""
    if job.setup is None:
        return None
    from clusterctl.client.launch.setup import read_setup_files

    with HashProgress(tr("reading the setup files")).shown() as progress:
        return read_setup_files(job.setup, job.env, Path(job.file).parent, state_dir() / "trees", progress)


def read_code(job: Job, *, big: bool = False, only_source: bool = False) -> ScanResult:
    """Walk and hash the job's source directory; `big` lifts the limits.

    The script is in it, or next to the job file and then sent too, unless `only_source`.
    """
    from clusterctl.client.sync.scan import scan_source

    source = Path(job.file).parent / expand(job.sync.source)
    exclude = (*job.sync.exclude, *_exclude_own_ways(job, source))
    cache = state_dir() / "trees"
    with HashProgress(tr("reading the code")).shown() as progress:
        scan = INTERRUPTS.call(
            lambda: scan_source(source, exclude=exclude, cache_dir=cache, big=big, progress=progress)
        )
    _announce_source(job, scan)
    for warning in scan.warnings:
        notice(warning)
    paths = {entry.path for entry in scan.manifest.entries}
    program = job.command[0] if job.command else ""
    if program.startswith("./") and os.path.normpath(program) not in paths:
        raise UsageError("CC-SYNC-010", "program", file=job.file, program=program, root=scan.root)
    if not job.script or Path(job.script).is_absolute() or os.path.normpath(job.script) in paths:
        return scan
    beside = Path(job.file).parent / job.script
    is_beside = "/" not in job.script and beside.is_file() and not (scan.root / job.script).exists()
    if only_source or not is_beside:
        raise _script_missing(job, scan)
    return scan.with_file(beside)


KEY_FOLDERS = frozenset({".ssh", ".gnupg", ".aws"})  # hold private keys and passwords


def _announce_source(job: Job, scan: ScanResult) -> None:
    """Report before anything is sent what one does not expect of a job: another person may have written it."""
    folder, root = Path(job.file).parent.resolve(), scan.root.resolve()
    if not root.is_relative_to(folder):
        notice(tr("will send: {root} (outside of the job's directory)", root=make_visible(str(root))))
    parts = (part for entry in scan.manifest.entries for part in Path(entry.path).parts)
    found = sorted(KEY_FOLDERS.intersection([*parts, root.name]))
    if found:
        notice(tr("will send: {folders} of {root}", folders=", ".join(found), root=make_visible(str(root))))


def _script_missing(job: Job, scan: ScanResult) -> UsageError:
    """Return where the job names the script, and which file it may have meant."""
    from clusterctl.specs.text import find_nearest

    script = str(job.script)
    facts = {"file": _line_of_script(job), "script": script, "root": str(scan.root)}
    if (scan.root / script).is_file():
        return UsageError("CC-SYNC-010", "script-excluded", **facts)
    scripts = [entry.path for entry in scan.manifest.entries if entry.path.endswith((".py", ".sh"))]
    guess = find_nearest(script, scripts) or (scripts[0] if len(scripts) == 1 else "")
    return UsageError("CC-SYNC-010", "script-near" if guess else "script", guess=guess, **facts)


def _line_of_script(job: Job) -> str:
    """Return file and line of `script`; the file alone where it has no such line, or `--set` gave the script."""
    with suppress(OSError, UnicodeDecodeError):
        for number, line in enumerate(Path(job.file).read_text(encoding="utf-8").splitlines(), 1):
            if line.startswith("script:") and str(job.script) in line:
                return f"{job.file}:{number}"
    return job.file


def read_job_code(job: Job, nnodes: int, scan: ScanResult) -> JobCode:
    """Read what the job runs, and the files of the code that these import; what cannot be read shows nothing."""
    from clusterctl.plans.checks.script import list_scripts
    from clusterctl.plans.launch.script import MAX_FILES, MAX_SCRIPT, JobCode, ScriptUse

    sizes = {entry.path: entry.size for entry in scan.manifest.entries if entry.kind == "file"}
    scripts = list_scripts(job, sizes.keys())
    root = posixpath.dirname(scripts[0]) if scripts and job.module is None else ""
    texts: dict[str, str] = {}
    use = ScriptUse()
    known: set[str] = set()
    waiting = list(scripts)
    while waiting and len(known) < MAX_FILES:
        path = waiting.pop(0)
        if path in known or sizes.get(path, MAX_SCRIPT + 1) > MAX_SCRIPT:
            continue
        source = b""
        with suppress(OSError):  # removed since the scan; sending it reports the error
            source = scan.path_of(path).read_bytes()[:MAX_SCRIPT]
        if path in scripts:
            texts[path] = source.decode("utf-8", "replace")
        known.add(path)
        imports = use.add_file(path, source if path.endswith(".py") else b"", root)
        waiting += [name for name in imports if name in sizes]
    return JobCode(nnodes, frozenset(sizes), texts, use)


def _exclude_own_ways(job: Job, source: Path) -> Iterator[str]:
    """Yield what travels by itself, and once: the wheelhouse, and what the job stages."""
    folder, root = Path(job.file).parent.resolve(), source.resolve()
    own = [stage.origin.path for stage in job.stage if stage.origin.kind == "here"]
    own += [job.setup.wheelhouse] if job.setup and job.setup.wheelhouse else []
    for path in own:
        place = Path(os.path.normpath(folder / expand(path)))
        if place != root and place.is_relative_to(root):
            yield f"/{place.relative_to(root)}"
