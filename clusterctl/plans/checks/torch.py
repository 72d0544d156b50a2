"""torch and the libraries that come with it, as installed: nothing was imported to know this."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from clusterctl.plans.checks.framework import (
    CheckContext,
    Hit,
    Split,
    across_nodes,
    check,
    in_inventory,
    install_torch,
    on_node,
    pip_install,
    split_votes,
)
from clusterctl.plans.facts.facts import Facts
from clusterctl.plans.launch.launchers import has_simulated_gpus, vendor_of
from clusterctl.specs.inventory.model import Node

OLDEST_TORCH = (2, 2)
CUDA_13_DRIVER = 580


def _compare_nodes(context: CheckContext, value: Callable[[Facts], str | None]) -> Split | None:
    by_node = {node.name: value(facts) for node, facts in context.known}
    return split_votes({name: text for name, text in by_node.items() if text})


def _compare_torch(context: CheckContext) -> Split | None:
    return _compare_nodes(context, lambda facts: facts.torch.version)


def _install_commands(context: CheckContext, split: Split, version: str | None) -> str:
    odd = [(node, facts) for node, facts in context.known if node.name in split.odd]
    if not version:
        return "choose one version, and install it on all of them from one lock file"
    return "\n".join(install_torch(node, facts, version) for node, facts in odd[:4])


@check("CC-TORCH-001", needs=("torch",))
def torch_is_missing(context: CheckContext) -> Iterator[Hit]:
    split = _compare_torch(context)
    known = [facts.torch.version for _, facts in context.known if facts.torch.version]
    version = split.majority if split else next(iter(known), None)
    if not known and context.job and context.job.launcher == "command":
        return
    for node, facts in context.known:
        if not facts.torch.version:
            evidence = f"{facts.interpreter.executable or node.python} finds no torch"
            yield on_node(node, evidence, install_torch(node, facts, version))


@check("CC-TORCH-002", needs=("torch",))
def torch_differs(context: CheckContext) -> Iterator[Hit]:
    split = _compare_torch(context)
    if split:
        yield across_nodes(split.odd, split.evidence, _install_commands(context, split, split.majority))


@check("CC-TORCH-003", needs=("torch",))
def cuda_differs(context: CheckContext) -> Iterator[Hit]:
    if _compare_torch(context) is None:
        split = _compare_nodes(
            context, lambda facts: facts.torch.version and (_describe_cuda(facts) or "CPU only")
        )
        if split:
            target = f"torch for {split.majority}" if split.majority else "the same build of torch"
            yield across_nodes(split.odd, split.evidence, f"install {target} there, as on the others")


def _describe_cuda(facts: Facts) -> str | None:
    if facts.torch.cuda:
        return f"CUDA {facts.torch.cuda}"
    return f"ROCm {facts.torch.hip}" if facts.torch.hip else None


@check("CC-TORCH-004", needs=("torch", "nccl", "packages"))
def nccl_differs(context: CheckContext) -> Iterator[Hit]:
    if _compare_torch(context) is not None or (context.job and context.job.backend != "nccl"):
        return
    split = _compare_nodes(context, nccl_version)
    if split:
        name = next(
            (name for _, facts in context.known for name in facts.packages if "nccl" in name),
            "nvidia-nccl-cu12",
        )
        odd = [(node, facts) for node, facts in context.known if node.name in split.odd]
        fixes = [
            pip_install(node, facts, f"{name}=={split.majority}") for node, facts in odd[:4] if split.majority
        ]
        yield across_nodes(split.odd, split.evidence, "\n".join(fixes))


def nccl_version(facts: Facts) -> str | None:
    """Give the version of NCCL that is there: the library's own word, else the package's."""
    return facts.nccl.version or _package_version(facts, "nvidia-nccl")


def _package_version(facts: Facts, prefix: str) -> str | None:
    return next((version for name, version in facts.packages.items() if name.startswith(prefix)), None)


@check("CC-TORCH-005", needs=("torch",))
def torch_is_old(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        match = re.match(r"(\d+)\.(\d+)", facts.torch.version or "")
        if match and (int(match.group(1)), int(match.group(2))) < OLDEST_TORCH:
            yield on_node(node, facts.torch.version or "", install_torch(node, facts, None))


@check("CC-TORCH-006", needs=("torch", "gpus"))
def torch_without_cuda(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        lacks_gpu_support = (
            bool(facts.torch.version) and not _describe_cuda(facts) and vendor_of(facts) != "ascend"
        )
        is_relevant = not has_simulated_gpus(facts) if context.job is None else context.needs_gpus()
        if lacks_gpu_support and facts.gpus.vendor and is_relevant:
            evidence = f"torch {facts.torch.version} is for CPUs only"
            yield (
                _simulated_gpus_hit(node, evidence)
                if has_simulated_gpus(facts)
                else on_node(node, evidence, install_torch(node, facts, _cuda_build(facts)))
            )


def _simulated_gpus_hit(node: Node, cpus: str) -> Hit:
    fix = "job: backend: gloo, nproc_per_node: 1, no gpus:  # no torch can compute on a simulated GPU"
    return on_node(node, f"{cpus}, and the GPUs are simulated", fix)


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
            fix = pip_install(
                node, facts, "--force-reinstall", f"torch=={metadata_version.partition('+')[0]}"
            )
            yield on_node(
                node, f"metadata {metadata_version}, files {file_version} in {facts.torch.location}", fix
            )


@check("CC-TORCH-008", needs=("nccl", "packages"))
def nccl_is_not_the_package(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        package_version, library_version = _package_version(facts, "nvidia-nccl"), facts.nccl.version
        if package_version and library_version and package_version != library_version:
            origin = " by LD_PRELOAD" if facts.nccl.preloaded else ""
            preload_fix = "leave LD_PRELOAD out of `activate` and the shell's files, or set it on all nodes"
            package = next(name for name in facts.packages if name.startswith("nvidia-nccl"))
            reinstall_fix = pip_install(
                node, facts, "--force-reinstall", "--no-deps", f"{package}=={package_version}"
            )
            fix = preload_fix if facts.nccl.preloaded else reinstall_fix
            yield on_node(
                node, f"package {package_version}, {facts.nccl.library}{origin} says {library_version}", fix
            )


@check("CC-TORCH-009", needs=("torch", "packages"))
def cudnn_differs(context: CheckContext) -> Iterator[Hit]:
    if _compare_torch(context) is None:
        split = _compare_nodes(context, lambda facts: _package_version(facts, "nvidia-cudnn"))
        if split:
            target = f"cuDNN {split.majority}" if split.majority else "one cuDNN"
            yield across_nodes(
                split.odd, split.evidence, f"install {target} with pip there, as on the others"
            )


@check("CC-TORCH-010", needs=("nccl",))
def other_nccl(context: CheckContext) -> Iterator[Hit]:
    for node, facts in context.known:
        differing = [
            f"{other.by}: {other.library} is {other.version}, torch's own {facts.nccl.version}"
            for other in facts.nccl.others
            if other.version and other.version != facts.nccl.version
        ]
        if differing:
            names = " and ".join(dict.fromkeys(other.by for other in facts.nccl.others if other.by))
            fix = in_inventory(node, f"activate: unset {names}, or make it name torch's own NCCL")
            yield on_node(node, "; ".join(differing), fix)
