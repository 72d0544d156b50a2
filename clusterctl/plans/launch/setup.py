"""How a job's `setup` is carried out on a node: the steps word by word, and the name of all that goes into them.

What makes uv and conda environments is on the node; of several programs that could the first that is there is taken.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from clusterctl.plans.launch.template import Fill, Text, quote, text, to_json
from clusterctl.plans.sync.manifest import Manifest
from clusterctl.specs.job.model import Hook, Job, Setup

VERSION = 1
ENVIRONMENT, PYTHON = Fill("environment"), Fill("python")
OWN_PYTHON = text(ENVIRONMENT, "/bin/python")
SHELLS = ("bash", "sh")
CONDAS = ("micromamba", "mamba", "conda")
QUIET_PIP = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")

# Lines by which one requirements file leads to another.
_NAME = r"(?:\s*=\s*|\s+|(?=\S))(\"[^\"\n]+\"|'[^'\n]+'|\S+)"
INCLUDE = re.compile(rf"^\s*(?:-\s+)?(?:-r|-c|--requirement|--constraint){_NAME}", re.MULTILINE)

# Lines that install from a place beside the requirements file.
LOCAL = re.compile(
    r"^\s*(?:-\s+)?(?:(?:-e|--editable)[\s=]+)?(?:[\w.-]+\s*@\s*)?(?:file:)?(\.{1,2}(?:/[^\s;#\[]*)?)(?=[\s;#\[]|$)",
    re.MULTILINE,
)
UV_LOCAL = re.compile(r'source = \{ (?:directory|path|editable|virtual) = "([^"]+)" \}')
# Variables of a job that decide what comes out of the same lock file.
STEERING = re.compile(r"(PIP|UV|CONDA|MAMBA)_\w+|CC|CXX|CUDA_HOME|TORCH_CUDA_ARCH_LIST|\w*FLAGS")
NAMES_TORCH = re.compile(r"(?:^|[\"'\s\[-])torch(?=$|[\"'\s=<>~!;@\[,])", re.MULTILINE)


@dataclass(frozen=True)
class Step:
    """One command; `programs` are the names of which the first that the node has is run with `words`.

    `told` is what people know it by, where that is not the command itself.
    """

    programs: tuple[Text, ...]
    words: tuple[Text, ...]
    told: str = ""

    def render(self) -> str:
        """Write the command as a person would type it, the first program standing for all."""
        return " ".join(map(quote, (self.programs[0], *self.words)))


@dataclass(frozen=True)
class SetupPlan:
    """What makes an environment: steps, and all files that they read; `content` names both together."""

    setup: Setup
    steps: tuple[Step, ...]
    content: str
    brings_torch: bool


def plan_setup(setup: Setup, files: Manifest, locked: str, env: Mapping[str, str]) -> SetupPlan:
    """Plan the steps, the same for all nodes; `locked` is the text of the lock file, with those it includes.

    `env` is the job's: what tells installers where to find packages, and compilers how to build, counts as content.
    """
    steps = (*_environment_steps(setup, locked), *(shell_step(command) for command in setup.run))
    words = [[_words(step.programs), _words(step.words)] for step in steps]
    steering = sorted((key, value) for key, value in env.items() if STEERING.fullmatch(key))
    made_of = [VERSION, setup.kind, setup.system_site_packages, words, files.hash, steering]
    return SetupPlan(setup, steps, _digest(made_of), setup.kind is not None and _brings_torch(setup, locked))


def content_on(plan: SetupPlan, activate: str | None) -> str:
    """Name what a node makes; what prepares its shell may lead to other compilers and other programs."""
    return _digest([plan.content, activate]) if activate else plan.content


def _digest(made_of: list[Any]) -> str:
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()


def _words(texts: tuple[Text, ...]) -> list[Any]:
    return [to_json(one) for one in texts]


def _brings_torch(setup: Setup, locked: str) -> bool:
    """Tell whether the environment may have another torch than the node's own Python."""
    return not setup.system_site_packages or bool(NAMES_TORCH.search(locked))


def shell_step(command: str) -> Step:
    """Run a text by the shell, which ends at the first command that fails."""
    return Step(tuple(map(text, SHELLS)), (text("-e"), text("-c"), text(command)), command)


def _environment_steps(setup: Setup, locked: str) -> tuple[Step, ...]:
    if setup.kind == "venv":
        return _venv_steps(setup)
    if setup.kind == "uv":
        return _uv_steps(setup)
    return _conda_steps(setup, locked) if setup.kind == "conda" else ()


def _step(program: str | Fill | Text, *words: str | Fill | Text) -> Step:
    return Step((_text(program),), tuple(map(_text, words)))


def _text(word: str | Fill | Text) -> Text:
    return word if isinstance(word, tuple) else text(word)


def _offline(setup: Setup) -> tuple[str, ...]:
    return ("--no-index", "--find-links", setup.wheelhouse) if setup.wheelhouse else ()


def _site(setup: Setup) -> tuple[str, ...]:
    return ("--system-site-packages",) if setup.system_site_packages else ()


def _venv_steps(setup: Setup) -> tuple[Step, ...]:
    install = ("-m", "pip", "install", *QUIET_PIP, *_offline(setup), "-r", setup.lock)
    return _step(PYTHON, "-m", "venv", *_site(setup), ENVIRONMENT), _step(OWN_PYTHON, *install)


def _uv_steps(setup: Setup) -> tuple[Step, ...]:
    make = _step("uv", "venv", "--no-project", *_site(setup), "--python", PYTHON, ENVIRONMENT)
    if posixpath.basename(setup.lock) != "uv.lock":
        return make, _uv_install(setup, setup.lock)
    project = posixpath.dirname(setup.lock) or "."
    pinned = posixpath.join(posixpath.dirname(setup.lock), "locked-requirements.txt")
    wishes = ("--project", project, "--frozen", "--no-emit-project", "--no-dev", "--quiet")
    return make, _step("uv", "export", *wishes, "--output-file", pinned), _uv_install(setup, pinned)


def _uv_install(setup: Setup, requirements: str) -> Step:
    return _step("uv", "pip", "install", "--python", OWN_PYTHON, *_offline(setup), "-r", requirements)


def _conda_steps(setup: Setup, locked: str) -> tuple[Step, ...]:
    """An explicit lock file is for `create`, an environment.yml for `env create`, whichever program it is."""
    verb = ("create",) if re.search(r"^@EXPLICIT\s*$", locked, re.MULTILINE) else ("env", "create")
    words = (*verb, "--prefix", ENVIRONMENT, "--file", setup.lock)
    return (Step(tuple(map(text, CONDAS)), tuple(map(text, words))),)


def included(locked: str, path: str) -> tuple[str, ...]:
    """Name the files that a lock file leads to, by their places relative to the job."""
    return _beside(path, (name.strip("\"'") for name in INCLUDE.findall(locked)))


def needed(locked: str, path: str) -> tuple[str, ...]:
    """Name the places that a lock file installs from, relative to the job."""
    if posixpath.basename(path) == "uv.lock":
        found = (name for name in UV_LOCAL.findall(locked) if name != ".")  # that is the project itself
        return _beside(path, found)
    return _beside(path, LOCAL.findall(locked))


def _beside(path: str, names: Iterable[str]) -> tuple[str, ...]:
    folder = posixpath.dirname(path)
    return tuple(posixpath.normpath(posixpath.join(folder, name)) for name in names if "://" not in name)


def companions(setup: Setup) -> tuple[str, ...]:
    """Name the files that the lock file cannot do without."""
    if setup.kind == "uv" and posixpath.basename(setup.lock) == "uv.lock":
        return (posixpath.join(posixpath.dirname(setup.lock), "pyproject.toml"),)
    return ()


def render_setup(plan: SetupPlan, files: Manifest) -> list[str]:
    """Say what would be done, for `launch --dry-run`."""
    made = "# setup, once on each node for the same content, with its own <python>"
    freight = f"# files for it: {len(files.entries)}, {files.size} bytes"
    return [made, freight, "cd <run_dir>/setup", *(step.render() for step in plan.steps), ""]


def setup_to_spec(plan: SetupPlan, files: Manifest, activate: str | None) -> dict[str, Any]:
    """Give what an agent needs to carry it out."""
    return {
        "content": content_on(plan, activate),
        "kind": plan.setup.kind,
        "outer": plan.setup.system_site_packages,
        "steps": [_step_to_spec(step) for step in plan.steps],
        "rows": [entry.row for entry in files.entries],
        "time_limit": plan.setup.time_limit,
    }


def _step_to_spec(step: Step) -> dict[str, Any]:
    return {
        "programs": _words(step.programs),
        "words": _words(step.words),
        "shown": step.told or step.render(),
    }


def setup_to_json(plan: SetupPlan, files: Manifest) -> dict[str, Any]:
    """Give its place in `launch --dry-run --json`."""
    steps = [step.render() for step in plan.steps]
    return {"content": plan.content, "files": len(files.entries), "bytes": files.size, "steps": steps}


def setup_question(plan: SetupPlan | None, activate: str | None) -> dict[str, Any] | None:
    """Give what a probe is asked about the environment."""
    if plan is None or plan.setup.kind is None:
        return None
    return {"content": content_on(plan, activate), "brings_torch": plan.brings_torch}


def render_around(job: Job) -> list[str]:
    """Say what is run around each attempt, as comments."""
    return [
        f"# {name} each attempt, on each node: {command}"
        for name, hook in around(job).items()
        for command in hook.run
    ]


def hooks_to_spec(job: Job) -> dict[str, Any]:
    """Give the commands around each attempt, for the agents."""
    return {name: _hook_to_spec(hook) for name, hook in around(job).items()}


def around(job: Job) -> Mapping[str, Hook]:
    """Give `before` and `after`, as far as the job has them."""
    return {name: hook for name, hook in (("before", job.before), ("after", job.after)) if hook and hook.run}


def _hook_to_spec(hook: Hook) -> dict[str, Any]:
    return {
        "steps": [_step_to_spec(shell_step(command)) for command in hook.run],
        "time_limit": hook.time_limit,
    }
