"""What a forked process changes to be what `python -u SCRIPT` or `python -u -m MODULE` would be, and its run.

A difference that matters to scripts is undone here, or is a reason to start the worker with a new interpreter, as ever:
one function for each reason, empty where there is none. No version is a reason: what this package replaces or calls
without a promise that it exists is looked for instead (`NEEDED_PARTS`). What remains is listed in decision 68: frames
of ours below the script's, and the command line and variables that /proc shows.
"""

from __future__ import annotations

import builtins
import gc
import importlib.machinery
import inspect
import io
import operator
import os
import pkgutil
import subprocess
import sys
import sysconfig
import threading
import types
from contextlib import suppress
from importlib import import_module
from typing import Any, Callable, Dict, FrozenSet, Iterable, List, Mapping, NamedTuple, Sequence

from ..diagnose import rank as diagnosed_rank

OWN_PACKAGE = __name__.partition(".")[0]


class Command(NamedTuple):
    """What torchrun passes to `Popen`, and its current directory."""

    argv: List[str]
    env: Dict[str, str]
    cwd: str

    @property
    def module(self) -> str:
        """The module to run; empty for a script."""
        return self.argv[3] if self.argv[2] == "-m" else ""

    @property
    def folder(self) -> str:
        """What the interpreter puts before `sys.path`: the directory of the script, links resolved, or the current."""
        script = os.path.join(self.cwd, self.argv[2])
        return self.cwd if self.module else os.path.dirname(os.path.realpath(script))


def apply_command(command: Command, stdout: int, stderr: int) -> None:
    """Change all that a new interpreter would have found otherwise; the session is new already."""
    for source, target in ((stdout, 1), (stderr, 2)):
        os.dup2(source, target)
        os.close(source)
    os.chdir(command.cwd)
    os.environ.clear()
    os.environ.update(command.env)
    reset_interpreter(command)
    reset_random_numbers()
    reset_multiprocessing(command.cwd)
    reset_faulthandler()
    folder = os.environ.get(diagnosed_rank.VARIABLE)
    if folder:
        diagnosed_rank.watch(folder)
    diagnosed_rank.install(os.environ)


def reset_interpreter(command: Command) -> None:
    """Set arguments and search path, and forget our modules and the gate's `__main__`."""
    sys.argv = command.argv[2:]
    if command.module:
        sys.argv[:2] = ["-m"]  # runpy puts the module's path there
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(command.argv)
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, command.folder)
    sys.path_importer_cache.clear()
    for name in [name for name in sys.modules if name.partition(".")[0] == OWN_PACKAGE]:
        del sys.modules[name]
    sys.modules["__main__"] = make_main_module()
    gc.unfreeze()  # all of it is old, as in a process that has imported it itself
    main_thread: Any = threading.main_thread()
    main_thread._set_native_id()  # the number of the server's, as Python leaves it after a fork


def make_main_module() -> types.ModuleType:
    """Make `__main__` as the interpreter makes it, attributes in its order."""
    module = types.ModuleType("__main__")
    module.__loader__ = importlib.machinery.BuiltinImporter
    if sys.version_info < (3, 14):
        module.__annotations__ = {}
    module.__dict__["__builtins__"] = builtins
    return module


def reset_random_numbers() -> None:
    """Reseed NumPy and torch, as their import does; `random` does so by itself after a fork."""
    numpy: Any = sys.modules.get("numpy.random")
    if numpy is not None:
        numpy.seed()
    torch: Any = sys.modules.get("torch")
    if torch is not None:
        torch.default_generator.seed()


def reset_multiprocessing(cwd: str) -> None:
    """Renew what multiprocessing has taken from the process that imported it."""
    process: Any = sys.modules.get("multiprocessing.process")
    if process is not None:
        process.ORIGINAL_DIR = cwd
        process.current_process().authkey = os.urandom(32)


def reset_faulthandler() -> None:
    """Start faulthandler for this process if PYTHONFAULTHANDLER asks for it."""
    faulthandler = sys.modules.get("faulthandler")
    if faulthandler is not None and faulthandler.is_enabled():
        faulthandler.disable()
        faulthandler.enable()


def run_command(command: Command) -> None:
    """Run the script or module as the interpreter does; what it raises passes through and ends the process.

    The traceback of an error is printed here, where our frames can be left out. The interpreter, which must see the
    error to end by SIGINT after Ctrl-C, prints it no second time.
    """
    try:
        if command.module:
            import runpy

            runpy._run_module_as_main(command.module)  # type: ignore[attr-defined]  # what the interpreter itself calls
        else:
            run_script(command)
    except SystemExit:
        raise
    except BaseException as error:
        print_error(error)
        sys.excepthook = lambda *_: None
        raise


def run_script(command: Command) -> None:
    """Run a script in `__main__`, whose attributes are those that the interpreter sets."""
    path = command.argv[2]
    if sys.version_info >= (3, 9):
        path = os.path.join(command.cwd, path)
    main = sys.modules["__main__"]
    main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
    main.__file__, main.__dict__["__cached__"] = path, None
    try:
        with io.open_code(path) as source:
            content = source.read()
        exec(compile(content, path, "exec", dont_inherit=True), main.__dict__)
    finally:  # as the interpreter does, before functions of `atexit`
        for stream in (sys.stderr, sys.stdout):
            with suppress(Exception):
                stream.flush()
        for name in ("__file__", "__cached__"):
            main.__dict__.pop(name, None)


def print_error(error: BaseException) -> None:
    """Print an error by the hook, without our frames; a syntax error of the script has no others."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == run_command.__code__.co_filename:
        trace = trace.tb_next
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    sys.excepthook(type(error), error, trace)


# What a forked worker needs and Python's documentation does not promise, as module:attributes.
NEEDED_PARTS = (
    "subprocess:Popen._execute_child",
    "threading:Thread._set_native_id",
    "runpy:_run_module_as_main",
    "multiprocessing.process:ORIGINAL_DIR",
)
# Parameters of the method of Popen that starts the child: what is read of its call.
CHILD_PARAMETERS = ("args", "env", "c2pwrite", "errwrite")
# What libc, libraries below torch, or modules read once, when they are loaded.
LOAD_PREFIXES = (
    *("LD_", "GLIBC_", "MALLOC_", "PYTHON", "LC_", "CUDA", "NVIDIA_", "HIP_", "ROCR_", "ASCEND_", "HCCL_"),
    *(
        "OMP_",
        "GOMP_",
        "KMP_",
        "MKL_",
        "OPENBLAS_",
        "GOTO_",
        "BLIS_",
        "NUMEXPR_",
        "DNNL_",
        "ONEDNN_",
        "ATEN_",
    ),
    *("TORCH", "PYTORCH", "NCCL_", "GLOO_", "UCX_", "FI_"),
)
LOAD_VARIABLES = frozenset({"LANG", "LANGUAGE", "TZ", "PATH", "HOME"})
# What torchrun sets for each worker; nothing reads it before the script begins.
RANK_PREFIXES = ("TORCHELASTIC_", "TORCH_NCCL_ASYNC_ERROR_HANDLING")
# With these an interpreter prints, measures or allocates in another way from its start on.
DEBUG_VARIABLES = (
    *("PYTHONDEVMODE", "PYTHONVERBOSE", "PYTHONDEBUG", "PYTHONINSPECT", "PYTHONPROFILEIMPORTTIME"),
    *("PYTHONMALLOC", "PYTHONMALLOCSTATS", "PYTHONDUMPREFS", "PYTHONDUMPREFSFILE", "PYTHONTRACEMALLOC"),
    *("PYTHONPERFSUPPORT", "PYTHON_PERF_JIT_SUPPORT", "PYTHONEXECUTABLE", "PYTHON_PRESITE"),
)
BINDING_VARIABLES = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
TRACING_VARIABLES = ("COVERAGE_PROCESS_START", "COVERAGE_PROCESS_CONFIG")
CUSTOMIZE_MODULES = ("sitecustomize", "usercustomize")
DEVICE_PREFIXES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/davinci", "/dev/infiniband")
HANDLER_MODULE = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"


def find_process_obstacle(torch: Any, env: Mapping[str, str]) -> str:
    """Return the first reason why this process, torch imported, must not be forked."""
    checks: List[Callable[[], str]] = [
        find_other_interpreter,
        find_missing_part,
        lambda: find_variables(env),
        find_customization,
        find_tracer,
        lambda: find_device(torch),
    ]
    return next(filter(None, (check() for check in checks)), "")


def find_other_interpreter() -> str:
    """Refuse interpreters that are not CPython with its lock, and one without `-u`, which torchrun passes."""
    if sys.implementation.name != "cpython":
        return "the interpreter is %s" % sys.implementation.name
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the interpreter is built without the global lock"
    return "" if getattr(sys.flags, "unbuffered", 1) else "PYTHONUNBUFFERED is empty"


def find_missing_part() -> str:
    """Refuse a Python without something that this package replaces or calls."""
    for part in NEEDED_PARTS:
        module, _, path = part.partition(":")
        try:
            operator.attrgetter(path)(import_module(module))
        except (ImportError, AttributeError):
            return "%s has no %s" % (module, path)
    there = list_child_parameters()
    missing = [name for name in CHILD_PARAMETERS if name not in there]
    return "subprocess.Popen._execute_child has no parameter %s" % missing[0] if missing else ""


def list_child_parameters() -> List[str]:
    """List what Popen passes to the method that starts the child, in its order."""
    start: Any = subprocess.Popen._execute_child  # type: ignore[attr-defined]  # not in the stubs
    return list(inspect.signature(start).parameters)[1:]


def find_handler_obstacle(handler: Any) -> str:
    """Refuse a torch whose torchrun does not start its workers by the name `Popen` of this module."""
    if handler is None:
        return "torch has no %s" % HANDLER_MODULE
    if getattr(handler, "Popen", None) is not subprocess.Popen:
        return "%s has no Popen" % HANDLER_MODULE
    methods = vars(getattr(handler, "SubprocessHandler", object)).values()
    if not any("Popen" in method.__code__.co_names for method in methods if inspect.isfunction(method)):
        return "%s.SubprocessHandler does not call Popen" % HANDLER_MODULE
    return ""


def find_variables(env: Mapping[str, str]) -> str:
    """Refuse what a new interpreter or library would do otherwise at its start."""
    for name in (*DEBUG_VARIABLES, *BINDING_VARIABLES, *TRACING_VARIABLES):
        if env.get(name):
            return "%s is set" % name
    path = env.get("PYTHONPATH")
    if path and not all(map(os.path.isabs, path.split(os.pathsep))):
        return "PYTHONPATH has entries that are relative to the code"
    return ""


def find_customization() -> str:
    """Refuse modules that run at every start of this interpreter; the one of a distribution does nothing."""
    ours = os.path.realpath(sysconfig.get_path("stdlib"))
    for name in CUSTOMIZE_MODULES:
        path = getattr(sys.modules.get(name), "__file__", None)
        if path and os.path.dirname(os.path.abspath(path)) not in (ours, sysconfig.get_path("stdlib")):
            return "%s runs at each start of the interpreter" % path
    return ""


def find_tracer() -> str:
    """Refuse a debugger, profiler or coverage that was started with the interpreter."""
    monitoring: Any = getattr(sys, "monitoring", None)
    tools = any(monitoring.get_tool(number) for number in range(6)) if monitoring is not None else False
    return "a tracer or profiler is active" if sys.gettrace() or sys.getprofile() or tools else ""


def find_device(torch: Any) -> str:
    """Refuse a process that has touched an accelerator: its driver does not survive a fork."""
    if torch.cuda.is_initialized():
        return "CUDA is initialised"
    devices = [target for target in open_files() if target.startswith(DEVICE_PREFIXES)]
    return "%s is open" % devices[0] if devices else ""


def open_files() -> List[str]:
    """Name what this process has open."""
    targets = []
    for number in os.listdir("/proc/self/fd"):
        try:
            targets.append(os.readlink("/proc/self/fd/" + number))
        except OSError:
            continue
    return targets


def find_command_obstacle(command: Command, env: Mapping[str, str], imported: FrozenSet[str]) -> str:
    """Return the first reason why a forked worker could not be what this command starts.

    `env` and `imported` are the variables and the top-level modules of the server.
    """
    program = command.argv[0]
    if program != sys.executable:
        return "the workers are started by %s, not by %s" % (program, sys.executable)
    if (
        len(command.argv) < 3
        or command.argv[1] != "-u"
        or (command.argv[2] == "-m") != (command.argv[2].startswith("-"))
    ):
        return "the interpreter gets other options than -u"
    return (
        find_changed_variable(command.env, env)
        or find_odd_script(command)
        or find_hidden_module(command.folder, imported)
    )


def find_changed_variable(env: Mapping[str, str], server: Mapping[str, str]) -> str:
    """Refuse another value of a variable that is read only when a library is loaded."""
    env = without_own_path(env)
    for name in sorted({*env, *server}):
        if env.get(name) != server.get(name) and is_read_at_load(name):
            return "%s differs from its value when torch was imported" % name
    return ""


def without_own_path(env: Mapping[str, str]) -> Mapping[str, str]:
    """Leave out of PYTHONPATH the directory with our `sitecustomize`: a forked worker does the same by itself."""
    site = os.path.join(env.get(diagnosed_rank.VARIABLE, ""), diagnosed_rank.SITE)
    first, _, others = env.get("PYTHONPATH", "").partition(os.pathsep)
    if first != site:
        return env
    return {
        name: value for name, value in {**env, "PYTHONPATH": others}.items() if name != "PYTHONPATH" or value
    }


def is_read_at_load(name: str) -> bool:
    """Whether libc, a library or a module may have read a variable already."""
    if name.startswith(RANK_PREFIXES):
        return False
    return name in LOAD_VARIABLES or name.startswith(LOAD_PREFIXES)


def find_odd_script(command: Command) -> str:
    """Refuse what is no plain file: a directory or archive with a `__main__`, or nothing at all."""
    if command.module:
        return ""
    script = os.path.join(command.cwd, command.argv[2])
    if not os.path.isfile(script) or not os.access(script, os.R_OK):
        return "%s is no file that can be read" % command.argv[2]
    if script.endswith(".pyc"):
        return "%s is byte code" % command.argv[2]
    return "%s is an archive" % command.argv[2] if pkgutil.get_importer(script) is not None else ""


def find_hidden_module(folder: str, imported: FrozenSet[str]) -> str:
    """Refuse a script beside which lies a module of the name of one that is imported: a new interpreter takes that."""
    if getattr(sys.flags, "safe_path", False):
        return ""
    for name in sorted(list_modules(folder)):
        if name in imported:
            return "%s in %s has the name of a module that is imported already" % (name, folder)
    return ""


def list_modules(folder: str) -> Iterable[str]:
    """Name the modules and packages of a directory."""
    try:
        entries = os.listdir(folder)
    except OSError:
        return []
    names = [entry.partition(".")[0] for entry in entries if entry.endswith((".py", ".so", ".pyc"))]
    return names + [entry for entry in entries if os.path.exists(os.path.join(folder, entry, "__init__.py"))]


def list_imported() -> FrozenSet[str]:
    """Name the top-level modules that a file of the same name would have hidden."""
    tops = {name.partition(".")[0] for name in sys.modules}
    return frozenset(tops - {*sys.builtin_module_names, "__main__", "clusterctl"})


def count_threads() -> int:
    """Count the threads of this process, those of libraries too."""
    return len(os.listdir("/proc/self/task"))


def list_failed_imports(names: Sequence[str]) -> Dict[str, str]:
    """Import modules; returns the errors."""
    errors = {}
    for name in names:
        try:
            __import__(name)
        except Exception as error:  # noqa: BLE001, RUF100 - whatever a package raises at its import
            errors[name] = "%s: %s" % (type(error).__name__, error)
    return errors
