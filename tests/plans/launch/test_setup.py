"""The plan of a setup: its steps word by word, and what counts as the same content."""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusterctl.plans.launch.setup import (
    content_hash_on_node,
    list_included_files,
    list_local_sources,
    plan_setup,
    setup_probe_request,
    setup_to_spec,
)
from clusterctl.plans.sync.manifest import make_manifest
from clusterctl.protocol.manifest import TreeEntry
from clusterctl.specs.job.model import Setup

FILES = make_manifest([TreeEntry("requirements.txt", "file", 0o644, "a" * 64, 9)])
VENV = Setup(venv="requirements.txt", wheelhouse="wheels")


def steps(setup: Setup, locked: str = "") -> list[str]:
    """Render the steps."""
    return [step.render() for step in plan_setup(setup, FILES, locked, {}).steps]


def test_steps_of_a_venv() -> None:
    """Pip is the environment's own, and asks no one where there is a wheelhouse."""
    pip = "pip install --disable-pip-version-check --no-input --progress-bar off"
    assert steps(VENV) == [
        "<python> -m venv <environment>",
        f"<environment>/bin/python -m {pip} --no-index --find-links wheels -r requirements.txt",
    ]
    assert (
        steps(replace(VENV, system_site_packages=True))[0]
        == "<python> -m venv --system-site-packages <environment>"
    )


def test_steps_of_uv() -> None:
    """A requirements file is installed; a uv.lock is exported word by word first."""
    install = "uv pip install --python <environment>/bin/python"
    assert steps(Setup(uv="r.txt"))[1:] == [f"{install} -r r.txt"]
    assert steps(Setup(uv="p/uv.lock"))[1:] == [
        "uv export --project p --frozen --no-emit-project --no-dev --quiet --output-file p/locked-requirements.txt",
        f"{install} -r p/locked-requirements.txt",
    ]


def test_steps_of_conda() -> None:
    """An explicit lock file is for `create`, an environment.yml for `env create`; several programs can do it."""
    lock = Setup(conda="lock.txt")
    assert steps(lock, "@EXPLICIT\nhttps://x") == ["micromamba create --prefix <environment> --file lock.txt"]
    assert steps(lock, "dependencies: []") == ["micromamba env create --prefix <environment> --file lock.txt"]
    spec = setup_to_spec(plan_setup(lock, FILES, "", {}), FILES, None)
    assert spec["steps"][0]["programs"] == ["micromamba", "mamba", "conda"]


def test_commands_go_to_a_shell_as_they_are() -> None:
    """They are one word, whatever is in them, and shown as they were written."""
    plan = plan_setup(Setup(run=("echo 'a b' $X; ${y}",)), FILES, "", {})
    (step,) = setup_to_spec(plan, FILES, None)["steps"]
    assert (step["programs"], step["arguments"], step["shown"]) == (
        ["bash", "sh"],
        ["-e", "-c", "echo 'a b' $X; ${y}"],
        "echo 'a b' $X; ${y}",
    )


def test_what_counts_as_content() -> None:
    """Files, steps, what steers an installer, and what prepares the shell; not time, and no other variable."""
    plan = plan_setup(VENV, FILES, "", {"LR": "1"})
    other = make_manifest([TreeEntry("requirements.txt", "file", 0o644, "b" * 64, 9)])

    assert plan_setup(replace(VENV, time_limit=5), FILES, "", {"LR": "2"}).content_hash == plan.content_hash
    assert content_hash_on_node(plan, None) == plan.content_hash
    different = [
        plan_setup(VENV, other, "", {}).content_hash,
        plan_setup(replace(VENV, run=("true",)), FILES, "", {}).content_hash,
        plan_setup(replace(VENV, system_site_packages=True), FILES, "", {}).content_hash,
        plan_setup(VENV, FILES, "", {"PIP_EXTRA_INDEX_URL": "https://x"}).content_hash,
        plan_setup(VENV, FILES, "", {"CFLAGS": "-O3"}).content_hash,
        content_hash_on_node(plan, "module load cuda/12.4"),
    ]
    assert len({plan.content_hash, *different}) == len(different) + 1


@pytest.mark.parametrize(
    ("locked", "sees", "brings"),
    [
        ("numpy==2\n", True, False),
        ("torch==2.7.1\n", True, True),
        ("torchvision\ntorch-geometric\npytorch-lightning\n", True, False),
        ("dependencies:\n  - pip:\n    - torch[opt]\n", True, True),
        ('name = "torch"\n', True, True),
        ("numpy==2\n", False, True),
    ],
)
def test_whose_torch_it_will_be(locked: str, sees: bool, brings: bool) -> None:
    """The node's own only where the environment sees it and the lock file does not name another."""
    plan = plan_setup(replace(VENV, system_site_packages=sees), FILES, locked, {})
    question = setup_probe_request(plan, None)
    assert question is not None
    assert question["brings_torch"] is brings
    assert setup_probe_request(plan_setup(Setup(run=("true",)), FILES, "", {}), None) is None


def test_what_a_lock_file_leads_to() -> None:
    """Other requirements files, also from an environment.yml, and places beside it that are installed."""
    text = "-r base.txt\n--constraint=../c.txt\n  - -r 'my reqs.txt'\n-rshort.txt\n# -r no.txt\n-r https://x/y.txt\n"
    assert list_included_files(text, "env/r.txt") == (
        "env/base.txt",
        "c.txt",
        "env/my reqs.txt",
        "env/short.txt",
    )
    local = "-e ./pkg\n./w/x.whl ; python_version>'3'\nnumpy\n.\n-e .[dev]\npkg @ file:../up\n...\n"
    assert list_local_sources(local, "r.txt") == ("pkg", "w/x.whl", ".", ".", "../up")
    lock = 'source = { virtual = "." }\nsource = { editable = "packages/a" }\nsource = { registry = "../wheels" }\n'
    assert list_local_sources(lock, "p/uv.lock") == ("p/packages/a",)
