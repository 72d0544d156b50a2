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
from typing import TYPE_CHECKING, Any

from clusterctl.plans.launch.template import (
    AgentValue,
    Template,
    make_template,
    quote_template,
    template_to_json,
)
from clusterctl.plans.runs.documents import SetupEntry
from clusterctl.plans.sync.manifest import Manifest
from clusterctl.specs.job.model import Hook, Job, Setup
from clusterctl.translation import to_translate, tr

if TYPE_CHECKING:
    from clusterctl.protocol.messages.files import (
        HookSpec,
        SentTemplate,
        SetupQuery,
        SetupSpec,
        SpecPart,
        StepSpec,
    )

VERSION = 1
ENVIRONMENT, PYTHON = AgentValue("environment"), AgentValue("python")
OWN_PYTHON = make_template(ENVIRONMENT, "/bin/python")
SHELLS = ("bash", "sh")
CONDAS = ("micromamba", "mamba", "conda")
QUIET_PIP = ("--disable-pip-version-check", "--no-input", "--progress-bar", "off")

# Lines by which one requirements file leads to another.
_NAME = r"(?:\s*=\s*|\s+|(?=\S))(\"[^\"\n]+\"|'[^'\n]+'|\S+)"
INCLUDE = re.compile(rf"^\s*(?:-\s+)?(?:-r|-c|--requirement|--constraint){_NAME}", re.MULTILINE)

# Lines that install from a place next to the requirements file.
LOCAL_SOURCE = re.compile(
    r"^\s*(?:-\s+)?(?:(?:-e|--editable)[\s=]+)?(?:[\w.-]+\s*@\s*)?(?:file:)?(\.{1,2}(?:/[^\s;#\[]*)?)(?=[\s;#\[]|$)",
    re.MULTILINE,
)
UV_LOCAL_SOURCE = re.compile(r'source = \{ (?:directory|path|editable|virtual) = "([^"]+)" \}')
# Variables of a job that decide what comes out of the same lock file.
BUILD_VARIABLES = re.compile(r"(PIP|UV|CONDA|MAMBA)_\w+|CC|CXX|CUDA_HOME|TORCH_CUDA_ARCH_LIST|\w*FLAGS")
NAMES_TORCH = re.compile(r"(?:^|[\"'\s\[-])torch(?=$|[\"'\s=<>~!;@\[,])", re.MULTILINE)
ATTEMPT_TEXTS = {
    "before": to_translate("# before each attempt, on each node: {command}"),
    "after": to_translate("# after each attempt, on each node: {command}"),
}


@dataclass(frozen=True)
class Step:
    """One command; `programs` are the names of which the first that the node has is run with `words`.

    `label` is what people know it by, where that is not the command itself.
    """

    programs: tuple[Template, ...]
    words: tuple[Template, ...]
    label: str = ""

    def render(self) -> str:
        """Write the command as a person would type it, the first program standing for all."""
        return " ".join(map(quote_template, (self.programs[0], *self.words)))


@dataclass(frozen=True)
class SetupPlan:
    """What makes an environment: steps, and all files that they read; `content_hash` names both together."""

    setup: Setup
    steps: tuple[Step, ...]
    content_hash: str
    installs_torch: bool


def plan_setup(setup: Setup, files: Manifest, lock_text: str, env: Mapping[str, str]) -> SetupPlan:
    """Plan the steps, the same for all nodes; `lock_text` is the text of the lock file, with those it includes.

    `env` is the job's: what shows installers where to find packages, and compilers how to build, counts as content.
    """
    steps = (*_environment_steps(setup, lock_text), *(shell_step(command) for command in setup.run))
    commands = [[_templates_to_json(step.programs), _templates_to_json(step.words)] for step in steps]
    build_variables = sorted((key, value) for key, value in env.items() if BUILD_VARIABLES.fullmatch(key))
    hashed = [VERSION, setup.kind, setup.system_site_packages, commands, files.hash, build_variables]
    return SetupPlan(
        setup, steps, _digest(hashed), setup.kind is not None and _installs_torch(setup, lock_text)
    )


def content_hash_on_node(plan: SetupPlan, activate: str | None) -> str:
    """Name what a node makes; what prepares its shell may lead to other compilers and other programs."""
    return _digest([plan.content_hash, activate]) if activate else plan.content_hash


def _digest(hashed: list[Any]) -> str:
    return hashlib.sha256(json.dumps(hashed).encode()).hexdigest()


def _templates_to_json(templates: tuple[Template, ...]) -> list[SentTemplate]:
    return [template_to_json(template) for template in templates]


def _installs_torch(setup: Setup, lock_text: str) -> bool:
    """Return whether the environment may have another torch than the node's own Python."""
    return not setup.system_site_packages or bool(NAMES_TORCH.search(lock_text))


def shell_step(command: str) -> Step:
    """Run a text by the shell, which ends at the first command that fails."""
    return Step(
        tuple(map(make_template, SHELLS)),
        (make_template("-e"), make_template("-c"), make_template(command)),
        command,
    )


def _environment_steps(setup: Setup, lock_text: str) -> tuple[Step, ...]:
    if setup.kind == "venv":
        return _venv_steps(setup)
    if setup.kind == "uv":
        return _uv_steps(setup)
    return _conda_steps(setup, lock_text) if setup.kind == "conda" else ()


def _step(program: str | AgentValue | Template, *words: str | AgentValue | Template) -> Step:
    return Step((_as_template(program),), tuple(map(_as_template, words)))


def _as_template(word: str | AgentValue | Template) -> Template:
    return word if isinstance(word, tuple) else make_template(word)


def _offline_options(setup: Setup) -> tuple[str, ...]:
    return ("--no-index", "--find-links", setup.wheelhouse) if setup.wheelhouse else ()


def _site_packages_option(setup: Setup) -> tuple[str, ...]:
    return ("--system-site-packages",) if setup.system_site_packages else ()


def _venv_steps(setup: Setup) -> tuple[Step, ...]:
    install = ("-m", "pip", "install", *QUIET_PIP, *_offline_options(setup), "-r", setup.lock)
    return _step(PYTHON, "-m", "venv", *_site_packages_option(setup), ENVIRONMENT), _step(
        OWN_PYTHON, *install
    )


def _uv_steps(setup: Setup) -> tuple[Step, ...]:
    create_step = _step(
        "uv", "venv", "--no-project", *_site_packages_option(setup), "--python", PYTHON, ENVIRONMENT
    )
    if posixpath.basename(setup.lock) != "uv.lock":
        return create_step, _uv_install(setup, setup.lock)
    project = posixpath.dirname(setup.lock) or "."
    pinned = posixpath.join(posixpath.dirname(setup.lock), "locked-requirements.txt")
    options = ("--project", project, "--frozen", "--no-emit-project", "--no-dev", "--quiet")
    return create_step, _step("uv", "export", *options, "--output-file", pinned), _uv_install(setup, pinned)


def _uv_install(setup: Setup, requirements: str) -> Step:
    return _step("uv", "pip", "install", "--python", OWN_PYTHON, *_offline_options(setup), "-r", requirements)


def _conda_steps(setup: Setup, lock_text: str) -> tuple[Step, ...]:
    """An explicit lock file is for `create`, an environment.yml for `env create`, whichever program it is."""
    verb = ("create",) if re.search(r"^@EXPLICIT\s*$", lock_text, re.MULTILINE) else ("env", "create")
    words = (*verb, "--prefix", ENVIRONMENT, "--file", setup.lock)
    return (Step(tuple(map(make_template, CONDAS)), tuple(map(make_template, words))),)


def list_included_files(lock_text: str, path: str) -> tuple[str, ...]:
    """Name the files that a lock file leads to, by their places relative to the job."""
    return _resolve_siblings(path, (name.strip("\"'") for name in INCLUDE.findall(lock_text)))


def list_local_sources(lock_text: str, path: str) -> tuple[str, ...]:
    """Name the places that a lock file installs from, relative to the job."""
    if posixpath.basename(path) == "uv.lock":
        # that is the project itself
        sources = (name for name in UV_LOCAL_SOURCE.findall(lock_text) if name != ".")
        return _resolve_siblings(path, sources)
    return _resolve_siblings(path, LOCAL_SOURCE.findall(lock_text))


def _resolve_siblings(path: str, names: Iterable[str]) -> tuple[str, ...]:
    folder = posixpath.dirname(path)
    return tuple(posixpath.normpath(posixpath.join(folder, name)) for name in names if "://" not in name)


def list_companion_files(setup: Setup) -> tuple[str, ...]:
    """Name the files that the lock file cannot do without."""
    if setup.kind == "uv" and posixpath.basename(setup.lock) == "uv.lock":
        return (posixpath.join(posixpath.dirname(setup.lock), "pyproject.toml"),)
    return ()


def render_setup(plan: SetupPlan, files: Manifest) -> list[str]:
    """Return what would be done, for `launch --dry-run`."""
    heading = tr("# setup, once on each node for the same content, with its own <python>")
    file_summary = tr("# files for it: {count}, {size} bytes", count=len(files.entries), size=files.size)
    return [heading, file_summary, "cd <run_dir>/setup", *(step.render() for step in plan.steps), ""]


def setup_to_spec(plan: SetupPlan, files: Manifest, activate: str | None) -> SetupSpec:
    """Return what an agent needs to carry it out."""
    return {
        "content": content_hash_on_node(plan, activate),
        "kind": plan.setup.kind,
        "outer": plan.setup.system_site_packages,
        "steps": [_step_to_spec(step) for step in plan.steps],
        "rows": [list(entry) for entry in files.entries],
        "time_limit": plan.setup.time_limit,
    }


def _step_to_spec(step: Step) -> StepSpec:
    return {
        "programs": _templates_to_json(step.programs),
        "arguments": _templates_to_json(step.words),
        "shown": step.label or step.render(),
    }


def setup_to_json(plan: SetupPlan, files: Manifest) -> SetupEntry:
    """Return its place in `launch --dry-run --json`."""
    steps = [step.render() for step in plan.steps]
    return {"content": plan.content_hash, "files": len(files.entries), "bytes": files.size, "steps": steps}


def setup_probe_request(plan: SetupPlan | None, activate: str | None) -> SetupQuery | None:
    """Return what a probe is asked about the environment."""
    if plan is None or plan.setup.kind is None:
        return None
    return {"content": content_hash_on_node(plan, activate), "brings_torch": plan.installs_torch}


def render_attempt_hooks(job: Job) -> list[str]:
    """Return what is run around each attempt, as comments."""
    return [
        tr(ATTEMPT_TEXTS[name], command=command)
        for name, hook in attempt_hooks(job).items()
        for command in hook.run
    ]


def hooks_to_spec(job: Job) -> SpecPart:
    """Return the commands around each attempt, for the agents."""
    hooks: Any = {name: _hook_to_spec(hook) for name, hook in attempt_hooks(job).items()}
    return hooks  # type: ignore[no-any-return]  # the names are `before` and `after`


def attempt_hooks(job: Job) -> Mapping[str, Hook]:
    """Return `before` and `after`, as far as the job has them."""
    return {name: hook for name, hook in (("before", job.before), ("after", job.after)) if hook and hook.run}


def _hook_to_spec(hook: Hook) -> HookSpec:
    return {
        "steps": [_step_to_spec(shell_step(command)) for command in hook.run],
        "time_limit": hook.time_limit,
    }
