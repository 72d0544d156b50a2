"""A job's text to what is to be run: all that is wrong at once, or the job."""

from __future__ import annotations

from collections.abc import Sequence

from clusterctl.errors import SpecError
from clusterctl.specs.document import in_order, read_document
from clusterctl.specs.examine import examine
from clusterctl.specs.job import Job, Sync
from clusterctl.specs.job_end import notify_of, on_end_of
from clusterctl.specs.job_file import JobFile
from clusterctl.specs.job_restart import restart_of
from clusterctl.specs.job_rules import broken_rules
from clusterctl.specs.job_setup import hook_of, setup_of
from clusterctl.specs.override import apply_overrides
from clusterctl.specs.waive import waivers_of


def parse_job(text: str, file: str, overrides: Sequence[tuple[str, str]] = ()) -> Job:
    """Read a job, with keys set on the command line; raises SpecError with all that is wrong."""
    written, issues = read_document(text, file)
    tree, refused = apply_overrides(written, overrides)
    entry, found = examine(tree, JobFile)
    issues = in_order((*issues, *refused, *found, *broken_rules(tree)))
    if issues or entry is None:
        raise SpecError(issues)
    return Job(
        name=entry.name,
        file=file,
        script=entry.script,
        module=entry.module,
        command=entry.command,
        args=entry.args,
        nproc_per_node=entry.nproc_per_node,
        nodes=entry.nodes,
        gpus=entry.gpus,
        exclusive=entry.exclusive,
        launcher=entry.launcher,
        use_env=entry.use_env,
        backend=entry.backend,
        env=entry.env,
        secrets=entry.secrets,
        sync=Sync(source=entry.sync.source, exclude=entry.sync.exclude, via=entry.sync.via),
        setup=setup_of(entry.setup),
        before=hook_of(entry.before),
        after=hook_of(entry.after),
        grace=entry.grace,
        time_limit=entry.time_limit,
        log_limit=entry.log_limit,
        restart=restart_of(entry.restart),
        on_end=on_end_of(entry.on_end),
        notify=notify_of(entry.notify),
        waive=waivers_of(entry.waive, file),
        python=entry.python,
        activate=entry.activate,
    )
