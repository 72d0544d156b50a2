"""torch and the libraries that come with it, as installed: nothing is imported for this."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    Split,
    across_nodes,
    check,
    compare_nodes,
    join_parts,
    on_node,
    parse_version,
    pip_install,
    run_on_each,
)
from clusterctl.plans.launch.launchers import has_simulated_gpus, vendor_of
from clusterctl.protocol.messages.facts import Facts
from clusterctl.specs.inventory.model import Node
from clusterctl.translation import to_translate, tr

OLDEST_TORCH = (2, 2)
CUDA_13_DRIVER = 580


def _compare_torch(context: CheckContext) -> Split | None:
    return compare_nodes(context, lambda facts: facts.torch.version)


def _install_commands(context: CheckContext, split: Split) -> str:
    """Return the commands that install the version of most nodes on the others."""
    odd = [(node, facts) for node, facts in context.known if node.name in split.odd]
    lines = {node.name: _install_torch(node, facts, split.majority) for node, facts in odd[:4]}
    commands = run_on_each(context, lines)
    if not _is_local_version(split.majority):
        return commands
    hint = tr("with --index-url: PyTorch's index")
    return "\n".join(f"{command}  # {hint}" for command in commands.split("\n"))


def _install_torch(node: Node, facts: Facts, version: str | None) -> str:
    """Return the line that installs torch, in the given version if there is one."""
    return pip_install(node, facts, f"torch=={version}" if version else "torch")


def _is_local_version(version: str | None) -> bool:
    """Recognise a version such as 2.7.1+cu126: only an index of PyTorch has it, and which one the user must choose."""
    return "+" in (version or "")


def _does_without(context: CheckContext) -> bool:
    """Recognise a job such as one of JAX: a plain Python, in an environment into which its `setup` has put no torch."""
    own = all(facts.setup.prefix and not facts.torch.version for _, facts in context.known)
    return own and context.job is not None and context.job.launcher == "python"


@check("CC-TORCH-001", needs=("torch",))
def torch_is_missing(context: CheckContext) -> Iterator[Hit]:
    if _does_without(context):
        return
    split = _compare_torch(context)
    known = [facts.torch.version for _, facts in context.known if facts.torch.version]
    version = split.majority if split else next(iter(known), None)
    if not known and context.job and context.job.launcher in ("command", "ray", "mpirun"):
        return
    needs_index = _is_local_version(version)
    for node, facts in context.known:
        if not facts.torch.version:
            evidence = tr("{python} has no torch", python=facts.interpreter.executable or node.python)
            if _is_system_python(facts):
                requirement = f"torch=={version.partition('+')[0]}" if version else "torch"
                written = context.job and context.job.file.endswith((".yaml", ".yml"))  # else of a script
                file = context.job.file if context.job and written else "job.yaml"
                yield on_node(node, evidence, "system", requirement=requirement, file=file)
            else:
                command = _install_torch(node, facts, version)
                yield on_node(node, evidence, "index" if needs_index else "", command=command)


def _is_system_python(facts: Facts) -> bool:
    """Recognise the Python of the distribution, into which pip installs nothing (PEP 668), or only as root."""
    return facts.interpreter.prefix in ("/usr", "/usr/local")


@check("CC-TORCH-002", needs=("torch",))
def torch_differs(context: CheckContext) -> Iterator[Hit]:
    split = _compare_torch(context)
    if split:
        yield across_nodes(
            split.odd,
            split.evidence,
            "" if split.majority else "any",
            commands=_install_commands(context, split),
        )


@check("CC-TORCH-003", needs=("torch",))
def cuda_differs(context: CheckContext) -> Iterator[Hit]:
    if _compare_torch(context) is None:
        split = compare_nodes(
            context, lambda facts: facts.torch.version and (_describe_cuda(facts) or tr("CPU only"))
        )
        if split:
            yield across_nodes(
                split.odd, split.evidence, "" if split.majority else "any", target=split.majority
            )


def _describe_cuda(facts: Facts) -> str | None:
    if facts.torch.cuda:
        return f"CUDA {facts.torch.cuda}"
    return f"ROCm {facts.torch.hip}" if facts.torch.hip else None


@check("CC-TORCH-004", needs=("torch", "nccl", "packages"))
def nccl_differs(context: CheckContext) -> Iterator[Hit]:
    if _compare_torch(context) is not None or (context.job and context.job.backend != "nccl"):
        return
    split = compare_nodes(context, nccl_version)
    if split:
        name = next(
            (name for _, facts in context.known for name in facts.packages if "nccl" in name),
            "nvidia-nccl-cu12",
        )
        odd = [(node, facts) for node, facts in context.known if node.name in split.odd]
        lines = {
            node.name: pip_install(node, facts, f"{name}=={split.majority}")
            for node, facts in odd[:4]
            if split.majority
        }
        commands = run_on_each(context, lines)
        yield across_nodes(split.odd, split.evidence, "" if lines else None, commands=commands)


def nccl_version(facts: Facts) -> str | None:
    """Return the version of NCCL: that of the library itself, else the package's."""
    return facts.nccl.version or _package_version(facts, "nvidia-nccl")


def _package_version(facts: Facts, prefix: str) -> str | None:
    return next((version for name, version in facts.packages.items() if name.startswith(prefix)), None)


@check("CC-TORCH-005", needs=("torch",))
def torch_is_old(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        if (parse_version(facts.torch.version) or OLDEST_TORCH) < OLDEST_TORCH:
            yield on_node(node, facts.torch.version or "", command=_install_torch(node, facts, None))


@check("CC-TORCH-006", needs=("torch", "gpus"))
def torch_without_cuda(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        lacks_gpu_support = (
            bool(facts.torch.version) and not _describe_cuda(facts) and vendor_of(facts) != "ascend"
        )
        is_relevant = not has_simulated_gpus(facts) if context.job is None else context.needs_gpus()
        if lacks_gpu_support and facts.gpus.vendor and is_relevant:
            evidence = tr("torch {version} is built for CPUs only", version=facts.torch.version)
            yield (
                _simulated_gpus_hit(node, facts)
                if has_simulated_gpus(facts)
                else on_node(node, evidence, command=_install_torch(node, facts, _cuda_build(facts)))
            )


def _simulated_gpus_hit(node: Node, facts: Facts) -> Hit:
    evidence = tr(
        "torch {version} is built for CPUs only, and the GPUs are simulated", version=facts.torch.version
    )
    return on_node(node, evidence, "simulated")


def _cuda_build(facts: Facts) -> str:
    driver = re.match(r"\d+", facts.gpus.driver or facts.gpus.module or "")
    tag = "cu130" if driver and int(driver.group()) >= CUDA_13_DRIVER else "cu126"
    return f"{(facts.torch.version or '').partition('+')[0]}+{tag}"


@check("CC-TORCH-007", needs=("torch",))
def torch_is_mixed(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        metadata_version, file_version = facts.torch.installed, facts.torch.version
        if (
            metadata_version
            and file_version
            and metadata_version.partition("+")[0] != file_version.partition("+")[0]
        ):
            line = pip_install(
                node, facts, "--force-reinstall", f"torch=={metadata_version.partition('+')[0]}"
            )
            evidence = tr(
                "metadata {metadata}, files {files} in {folder}",
                metadata=metadata_version,
                files=file_version,
                folder=facts.torch.location,
            )
            yield on_node(node, evidence, command=line)


@check("CC-TORCH-008", needs=("nccl", "packages"))
def nccl_is_not_the_package(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        package_version, library_version = _package_version(facts, "nvidia-nccl"), facts.nccl.version
        if package_version and library_version and package_version != library_version:
            package = next(name for name in facts.packages if name.startswith("nvidia-nccl"))
            line = pip_install(node, facts, "--force-reinstall", "--no-deps", f"{package}=={package_version}")
            message = (
                to_translate("package {package}, but {library} (from LD_PRELOAD) is {version}")
                if facts.nccl.preloaded
                else to_translate("package {package}, but {library} is {version}")
            )
            evidence = tr(
                message, package=package_version, library=facts.nccl.library, version=library_version
            )
            yield on_node(
                node,
                evidence,
                "preload" if facts.nccl.preloaded else "",
                command=line,
            )


@check("CC-TORCH-009", needs=("torch", "packages"))
def cudnn_differs(context: CheckContext) -> Iterator[Hit]:
    if _compare_torch(context) is None:
        split = compare_nodes(context, lambda facts: _package_version(facts, "nvidia-cudnn"))
        if split:
            yield across_nodes(
                split.odd, split.evidence, "" if split.majority else "any", version=split.majority
            )


@check("CC-TORCH-010", needs=("nccl",))
def other_nccl(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        differing = [
            tr(
                "{owner}: {library} is {version}, that of torch is {own}",
                owner=other.by,
                library=other.library,
                version=other.version,
                own=facts.nccl.version,
            )
            for other in facts.nccl.others
            if other.version and other.version != facts.nccl.version
        ]
        if differing:
            names = tr(" and ").join(dict.fromkeys(other.by for other in facts.nccl.others if other.by))
            yield on_node(node, join_parts(differing), names=names)
