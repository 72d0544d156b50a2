"""What `activate` gave, on the screen."""

from __future__ import annotations

import io

from rich.console import Console

from clusterctl.console.findings import render_activated
from clusterctl.protocol.messages.facts import ActivateResult, Facts


def shown(*given: ActivateResult) -> str:
    """Print nodes gpu01, gpu02, ..."""
    console = Console(file=io.StringIO(), width=60)
    render_activated(console, {f"gpu{n:02}": Facts(activate=one) for n, one in enumerate(given, 1)})
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_equal_nodes_are_one_and_long_paths_are_cut() -> None:
    """Three entries of a path are enough to see whose it is."""
    one = ActivateResult(
        status=0,
        path=("/opt/conda/envs/t/bin", "/opt/conda/condabin", "/usr/local/bin", "/usr/bin", "/bin"),
        libraries=("/usr/local/cuda/lib64",),
        conda="/opt/conda/envs/t",
        nvcc="/usr/local/cuda/bin/nvcc",
        cuda="12.6",
        compiler="/usr/bin/cc",
        compiler_version="13.2.0",
    )

    assert shown(one, one, ActivateResult(status=1, path=("/bin",)), ActivateResult()).splitlines() == [
        "environment of `activate` on gpu[01-02]:",
        "  conda environment /opt/conda/envs/t",
        "  CUDA toolkit 12.6 at /usr/local/cuda/bin/nvcc",
        "  compiler 13.2.0 at /usr/bin/cc",
        "  PATH /opt/conda/envs/t/bin:/opt/conda/condabin:/usr/local/bin and 2 more",
        "  LD_LIBRARY_PATH /usr/local/cuda/lib64",
        "environment of `activate` on gpu03:",
        "  CUDA toolkit none",
        "  compiler none",
        "  PATH /bin",
    ]


def test_without_activate_nothing_is_shown() -> None:
    """And what a node reports cannot act on the terminal."""
    assert shown(ActivateResult()) == ""
    assert "\x1b" not in shown(ActivateResult(status=0, venv="/a\x1b[2Jb"))
