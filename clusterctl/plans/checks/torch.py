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


@check(
    "CC-TORCH-001",
    "error",
    "torch is not installed",
    why="torchrun is part of torch: without it nothing can start on this node.",
    needs=("torch",),
)
def torch_is_missing(context: CheckContext) -> Iterator[Hit]:
    """The interpreter named by `python:` finds no torch.

    Often torch is installed, but for another interpreter: in a conda environment or a virtual environment
    that only a login shell activates. Then name that environment's python, or write what activates it as
    `activate:`. A job with `launcher: command` may have a Python of its own: no node needs torch here then.
    """
    split = _compare_torch(context)
    known = [facts.torch.version for _, facts in context.known if facts.torch.version]
    version = split.majority if split else next(iter(known), None)
    if not known and context.job and context.job.launcher == "command":
        return
    for node, facts in context.known:
        if not facts.torch.version:
            evidence = f"{facts.interpreter.executable or node.python} finds no torch"
            yield on_node(node, evidence, install_torch(node, facts, version))


@check(
    "CC-TORCH-002",
    "error",
    "the torch versions differ",
    why=(
        "Nodes with different torch hang or fail in the first collective, with errors that do not "
        "name the cause."
    ),
    needs=("torch",),
)
def torch_differs(context: CheckContext) -> Iterator[Hit]:
    """All nodes must have exactly the same torch, its local tag included.

    2.7.1+cu126 and 2.7.1+cpu are different programs: the second has neither NCCL nor CUDA. Between releases
    the store protocol, the order of collectives and the NCCL inside change without notice.
    """
    split = _compare_torch(context)
    if split:
        yield across_nodes(split.odd, split.evidence, _install_commands(context, split, split.majority))


@check(
    "CC-TORCH-003",
    "error",
    "torch was built for different CUDA versions",
    why=(
        "Different CUDA runtimes bring different NCCL and kernels, so nodes disagree in collectives "
        "or results."
    ),
    needs=("torch",),
)
def cuda_differs(context: CheckContext) -> Iterator[Hit]:
    """The torch version is the same everywhere, but it was built for different CUDA (or ROCm) versions.

    This happens with builds of one's own, where the version carries no local tag.
    """
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


@check(
    "CC-TORCH-004",
    "error",
    "the NCCL versions differ",
    why="NCCL refuses to work with another version of itself: `invalid usage`, and only NCCL_DEBUG says why.",
    needs=("torch", "nccl", "packages"),
)
def nccl_differs(context: CheckContext) -> Iterator[Hit]:
    """All nodes must load exactly the same NCCL.

    The version was asked of the library itself, which is loaded for a moment without a GPU, because package
    metadata can lie: an upgrade of another package, LD_PRELOAD or LD_LIBRARY_PATH change what is loaded.
    """
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


@check(
    "CC-TORCH-005",
    "error",
    "torch is too old",
    why="clusterctl's launch needs torch 2.2 or later.",
    needs=("torch",),
)
def torch_is_old(context: CheckContext) -> Iterator[Hit]:
    """The torch on this node is older than 2.2, the oldest whose torchrun behaves as a launch expects."""
    for node, facts in context.known:
        match = re.match(r"(\d+)\.(\d+)", facts.torch.version or "")
        if match and (int(match.group(1)), int(match.group(2))) < OLDEST_TORCH:
            yield on_node(node, facts.torch.version or "", install_torch(node, facts, None))


@check(
    "CC-TORCH-006",
    "error",
    "torch has no CUDA",
    why="The node has GPUs and its torch has neither CUDA nor NCCL to use them with.",
    needs=("torch", "gpus"),
)
def torch_without_cuda(context: CheckContext) -> Iterator[Hit]:
    """This torch was built without CUDA or ROCm.

    With `backend: nccl` it fails with "Distributed package doesn't have NCCL built in", with
    `nproc_per_node: gpu` with "Cuda is not available". Install a build for your CUDA, or train on CPUs with
    `backend: gloo` and `nproc_per_node: cpu` or a number. The simulated GPUs of `lab up --gpus` compute nothing
    with any torch: they count only for a job that asks for GPUs.
    """
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


@check(
    "CC-TORCH-007",
    "warning",
    "torch is half upgraded",
    why="The package's metadata and the files disagree, so an installation was interrupted or mixed.",
    needs=("torch",),
)
def torch_is_mixed(context: CheckContext) -> Iterator[Hit]:
    """`pip` believes in one version of torch and the files are of another.

    A second torch elsewhere on the path (in ~/.local, or by PYTHONPATH) also looks like this. Install again.
    """
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


@check(
    "CC-TORCH-008",
    "warning",
    "the NCCL that loads is not the one installed",
    why="Versions then differ between nodes although the packages agree.",
    needs=("nccl", "packages"),
)
def nccl_is_not_the_package(context: CheckContext) -> Iterator[Hit]:
    """The library says another version than its package, or LD_PRELOAD brings in a library of its own."""
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


@check(
    "CC-TORCH-009",
    "warning",
    "the cuDNN versions differ",
    why="Nodes may choose different algorithms and drift apart in speed and in the last digits.",
    needs=("torch", "packages"),
)
def cudnn_differs(context: CheckContext) -> Iterator[Hit]:
    """The nodes have the same torch but different cuDNN packages."""
    if _compare_torch(context) is None:
        split = _compare_nodes(context, lambda facts: _package_version(facts, "nvidia-cudnn"))
        if split:
            target = f"cuDNN {split.majority}" if split.majority else "one cuDNN"
            yield across_nodes(
                split.odd, split.evidence, f"install {target} with pip there, as on the others"
            )


@check(
    "CC-TORCH-010",
    "warning",
    "another NCCL lies in the way",
    why="Whether it or torch's own is loaded depends on how torch and its companions were built.",
    needs=("nccl",),
)
def other_nccl(context: CheckContext) -> Iterator[Hit]:
    """LD_LIBRARY_PATH or VLLM_NCCL_SO_PATH leads to an NCCL of another version than the one that torch brings.

    torch's wheels find their own first; builds of conda or of your own, and vLLM, take the one that the variable names.
    `NCCL_DEBUG=VERSION` says at a run's start which it was. Leave the variable out, or make the versions equal.
    """
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
