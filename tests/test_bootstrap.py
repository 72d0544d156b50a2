"""The set-up of a checkout: which torch it takes, and what it says before that is downloaded."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CPU_INDEX = "https://download.pytorch.org/whl/cpu"
# Stands for the .venv's interpreter: notes what pip is to do; torch works once one is installed.
PYTHON = """#!/bin/sh
place=$(dirname "$0")
case "$*" in
*"pip config list"*) cat "$place/config" ;;
*"pip install"*) echo "$*" >>"$place/installed"
    case "$*" in *--index-url*) exit "$(cat "$place/answer")" ;; esac ;;
*messages.py*) ;;
*"import torch"*) [ -e "$place/installed" ] && grep -q "torch" "$place/installed" ;;
*) exec python3 "$@" ;;
esac
"""
PROGRAMS = ("sshd", "ssh-keygen", "ip", "unshare", "nsenter")


def set_up(folder: Path, *, gpu: bool, config: str, answer: int, language: str) -> tuple[list[str], str]:
    """Run the set-up for the demo in a checkout of its own; gives what pip installed, and the screen."""
    (folder / "tools").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "bootstrap.sh", folder / "tools")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, folder)
    programs = folder / "programs"
    for place, names in ((folder / ".venv" / "bin", ["python"]), (programs, [*PROGRAMS])):
        place.mkdir(parents=True)
        for name in names + (["nvidia-smi"] if gpu and place == programs else []):
            (place / name).write_text(PYTHON if name == "python" else "#!/bin/sh\n", encoding="utf-8")
            (place / name).chmod(0o755)
    (folder / ".venv" / "bin" / "config").write_text(config, encoding="utf-8")
    (folder / ".venv" / "bin" / "answer").write_text(str(answer), encoding="utf-8")
    environment = {**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "CLUSTERCTL_LANG": language}
    done = subprocess.run(
        [folder / "tools" / "bootstrap.sh", "demo"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    installed = (folder / ".venv" / "bin" / "installed").read_text(encoding="utf-8").splitlines()
    return [line for line in installed if "torch" in line], done.stderr


@pytest.mark.skipif(Path("/proc/driver/nvidia/version").exists(), reason="this machine has an NVIDIA GPU")
@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="this machine has nvidia-smi")
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="elsewhere the default build has no CUDA")
@pytest.mark.parametrize(
    ("gpu", "config", "answer", "tries_cpu", "warns"),
    [
        (False, "", 0, True, False),
        (False, "", 1, True, True),
        (True, "", 0, False, True),
        (False, "global.index-url='https://mirror.example/simple'\n", 0, False, True),
        (False, ":env:.find-links='/wheels'\n", 0, False, True),
    ],
    ids=["no GPU", "it cannot be had", "a GPU", "an index of the user's own", "wheels of the user's own"],
)
def test_a_machine_without_a_gpu_gets_the_small_build(
    tmp_path: Path, *, gpu: bool, config: str, answer: int, tries_cpu: bool, warns: bool
) -> None:
    """Where it can be had; size and time are shown before the download, the rest comes from where it always does."""
    torch, screen = set_up(tmp_path, gpu=gpu, config=config, answer=answer, language="en")

    assert any(f"--index-url {CPU_INDEX} torch==" in line for line in torch) == tries_cpu
    assert ("200 MB" in screen) == tries_cpu
    assert ("4.7 GB" in screen) == warns
    assert torch[-1].endswith("[torch]")
    assert CPU_INDEX not in torch[-1]


def test_the_set_up_is_in_the_language_of_the_user(tmp_path: Path) -> None:
    """It is the first that a new user reads."""
    _, screen = set_up(tmp_path, gpu=True, config="", answer=0, language="zh_CN.UTF-8")

    assert "准备环境：正在安装 torch==" in screen
    assert "set-up:" not in screen
