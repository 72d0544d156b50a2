"""Checks of a job against its script: arguments that are missing, workers started twice, addresses of other clusters.

What the script does is read from its syntax tree by `plans/launch/script.py`; no node needs to answer.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from ipaddress import ip_address

from clusterctl.plans.checks.framework import CheckContext, Finding, Hit, across_nodes, check, join_items
from clusterctl.plans.launch.script import (
    LOCAL_RANK_OPTIONS,
    MASTER_URL,
    Address,
    JobCode,
    list_addresses,
    local_rank_arg,
    merge_args,
    node_args,
    starts_workers,
)
from clusterctl.protocol.exit_status import SUSPECTED
from clusterctl.specs.job.model import Job
from clusterctl.specs.placeholders import Placeholder, parse_template
from clusterctl.specs.yaml.tree import render_args
from clusterctl.translation import tr, trn

MAX_LINES = 4
NODE_PLACEHOLDERS = frozenset({"node_rank", "nnodes", "master_addr", "master_port", "world_size"})
NESTED_LAUNCHERS = (
    "torchrun",
    "accelerate",
    "deepspeed",
    "torch.distributed.run",
    "torch.distributed.launch",
)

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
CodeFinder = Callable[[CheckContext, Job, JobCode], Iterator[Hit]]


def list_scripts(job: Job, paths: Collection[str]) -> tuple[str, ...]:
    """Name the files among the code that a job runs, as far as its words show."""
    words = [*job.command, *job.args, job.script or ""]
    if job.module:
        module = job.module.replace(".", "/")
        words += [f"{module}.py", f"{module}/__main__.py"]
    paths_in_words = (posixpath.normpath(word) for word in words if word)
    return tuple(dict.fromkeys(path for path in paths_in_words if path in paths))


def _check_code(code: str) -> Callable[[CodeFinder], CodeFinder]:
    """Register a check of the job's code, which is made where the code is known."""

    def register(find: CodeFinder) -> CodeFinder:
        def find_hits(context: CheckContext) -> Iterator[Hit]:
            if context.job is not None and context.local_facts.code is not None:
                yield from find(context, context.job, context.local_facts.code)

        check(code)(find_hits)
        return find

    return register


def _report(context: CheckContext, evidence: str, case: str = "", /, **facts: object) -> Hit:
    """Report something about the code, which all nodes run."""
    return across_nodes([node.name for node in context.nodes], evidence, case, **facts)


@_check_code("CC-CODE-001")
def local_rank_is_not_passed(context: CheckContext, job: Job, code: JobCode) -> Iterator[Hit]:
    option = code.use.local_rank_option
    launched = job.launcher in ("torchrun", "launch")
    if not launched or option is None or option.find_value(job.args) is not None:
        return
    passes = job.launcher == "launch" and not job.use_env
    if passes and LOCAL_RANK_OPTIONS[1] in option.names:
        return
    line = render_args(merge_args(job.args, [local_rank_arg(option)]))
    yield _report(context, str(option.line), "launch" if passes else "", line=line)


@_check_code("CC-CODE-002")
def workers_are_started_twice(context: CheckContext, job: Job, code: JobCode) -> Iterator[Hit]:
    spawn = None if job.is_single_process else starts_workers(code.use, job)
    if spawn is not None:
        evidence = tr("{place} calls torch.multiprocessing.spawn", place=spawn.line)
        args = node_args(code.use)
        case = "args" if args else ""
        yield _report(context, evidence, case, line=render_args(merge_args(job.args, args)))


@_check_code("CC-CODE-003")
def address_is_of_another_machine(context: CheckContext, job: Job, code: JobCode) -> Iterator[Hit]:
    for address in list_addresses(code.use, job):
        host = _host_of(address)
        if host and _is_elsewhere(context, host, code.nnodes):
            first = context.nodes[0]
            evidence = tr(
                "{place}: {address}; node 0 is {node} at {own}",
                place=_locate(job, address),
                address=address.value,
                node=first.name,
                own=context.networks[first.name].ip or first.host,
            )
            yield _with_way_out(context, job, code, address, evidence)


@_check_code("CC-CODE-004")
def address_has_no_scheme(context: CheckContext, job: Job, code: JobCode) -> Iterator[Hit]:
    for address in list_addresses(code.use, job):
        if not address.is_master_addr and "://" not in address.value:
            evidence = tr("{subject}: {text}", subject=_locate(job, address), text=address.value)
            yield _with_way_out(context, job, code, address, evidence)


def _locate(job: Job, address: Address) -> str:
    return str(address.line) if address.line.number else f"{job.file}: args"


def _with_way_out(context: CheckContext, job: Job, code: JobCode, address: Address, evidence: str) -> Hit:
    """Report an address: the option that holds it gets another value, or the line in the code changes."""
    option = code.use.option_of("init_method")
    if address.is_master_addr or option is None or address in code.use.addresses:
        return _report(context, evidence, "master" if address.is_master_addr else "")
    line = render_args(merge_args(job.args, (option.name, MASTER_URL)))
    return _report(context, evidence, "args", line=line)


def _host_of(address: Address) -> str:
    """Return the host of an address; empty for one that names none, or leaves it to the environment."""
    if "${" in address.value:
        return ""
    scheme, separator, rest = address.value.rpartition("://")
    if separator and scheme != "tcp":
        return ""
    host = rest.partition("/")[0]
    return host.rpartition("]")[0].lstrip("[") if host.startswith("[") else host.partition(":")[0]


def _is_elsewhere(context: CheckContext, host: str, nnodes: int) -> bool:
    """Return whether a host is surely not node 0; a name that only the nodes can resolve may be."""
    first, *others = context.nodes
    network = context.networks[first.name]
    facts = context.facts.get(first.name)
    addresses = {address.ip for nic in facts.nics for address in nic.addresses} if facts else set()
    own = {first.name, first.host, network.ip or "", *addresses}
    if host in own:
        return False
    if host in {name for node in others for name in (node.name, node.host)}:
        return True
    if host == "localhost":
        return nnodes > 1
    try:
        address = ip_address(host)
    except ValueError:
        return False
    return nnodes > 1 if address.is_loopback or address.is_unspecified else True


@_check_code("CC-CODE-005")
def six_is_gone(context: CheckContext, _: Job, code: JobCode) -> Iterator[Hit]:
    if code.use.six:
        lines = dict.fromkeys(map(str, code.use.six))
        yield _report(
            context, join_items([*list(lines)[:MAX_LINES], *(["..."] if len(lines) > MAX_LINES else [])])
        )


@_check_code("CC-CODE-006")
def rank_is_not_passed(context: CheckContext, job: Job, code: JobCode) -> Iterator[Hit]:
    option = code.use.option_of("rank")
    if job.runs_on_head or job.command or code.nnodes < 2:
        return
    if option is not None and not code.use.spawns and option.find_value(job.args) is None:
        line = render_args(merge_args(job.args, node_args(code.use)))
        yield _report(context, str(option.line), line=line)


@_check_code("CC-RUN-050")
def nothing_distinguishes_the_nodes(context: CheckContext, job: Job, code: JobCode) -> Iterator[Hit]:
    names = find_unaware(job, code)
    if names:
        evidence = trn(
            "{n} node; neither the job nor {files} uses ${node_rank}, NODE_RANK, MASTER_ADDR or the like",
            "{n} nodes; neither the job nor {files} uses ${node_rank}, NODE_RANK, MASTER_ADDR or the like",
            code.nnodes,
            files=", ".join(names),
        )
        args = node_args(code.use)
        case = "args" if args else "spawn" if code.use.spawns else ""
        yield _report(context, evidence, case, line=render_args(merge_args(job.args, args)))


def mark_suspected(job: Job, findings: Sequence[Finding]) -> Job:
    """Return the job with `alone` as it is planned: where nothing distinguishes the nodes they warn at the end too."""
    suspected = any(finding.code == "CC-RUN-050" and not finding.waived for finding in findings)
    return replace(job, alone=SUSPECTED) if suspected else job


def find_unaware(job: Job, code: JobCode) -> tuple[str, ...]:
    """Name the files that are run, or the launcher of the command, if nothing leads one node to the others.

    Below a launcher of the command's own the files prove nothing: their RANK is that launcher's. Other programs
    without a script may read our variables.
    """
    if not job.is_single_process or job.runs_on_head or code.nnodes < 2 or job.alone == "ok":
        return ()
    launchers = [word for word in job.command if posixpath.basename(word) in NESTED_LAUNCHERS][:1]
    names, texts = (launchers, ()) if launchers else (list(code.texts), tuple(code.texts.values()))
    words = (*job.command, *job.args, *job.env.values())
    placeholders = {
        piece.name for word in words for piece in parse_template(word) if isinstance(piece, Placeholder)
    }
    if placeholders & NODE_PLACEHOLDERS or any(_READ.search(_SET.sub("", text)) for text in (*words, *texts)):
        return ()
    return tuple(names)


@_check_code("CC-RUN-052")
def module_is_below_src(context: CheckContext, job: Job, code: JobCode) -> Iterator[Hit]:
    if job.module is None or "PYTHONPATH" in job.env:
        return
    module = job.module.replace(".", "/")
    files = (f"{module}.py", f"{module}/__main__.py")
    found = [f"src/{file}" for file in files if f"src/{file}" in code.paths]
    if found and not any(file in code.paths for file in files):
        yield _report(context, tr("module {module} is {path}", module=job.module, path=found[0]))
