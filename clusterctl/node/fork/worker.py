"""What a forked process changes to be what `python -u SCRIPT` or `python -u -m MODULE` would be, its run and its end.

Every difference that a script could notice is undone here, or is a reason not to fork (`obstacles.py`).
"""

from __future__ import annotations

import builtins
import functools
import gc
import importlib.machinery
import os
import signal
import sys
import threading
import types
from typing import Any, Callable, Dict, Iterator, List, NamedTuple

from ..diagnose import group as watched_group
from ..diagnose import rank as diagnosed_rank
from . import interface

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
    interface.show_command(
        [os.fsencode(word) for word in command.argv], interface.render_variables(command.env)
    )
    reset_interpreter(command)
    reset_random_numbers()
    reset_multiprocessing(command.cwd)
    reset_faulthandler()
    folder = os.environ.get(diagnosed_rank.VARIABLE)
    if folder:
        watched_group.watch(folder)
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
    """Let faulthandler, if PYTHONFAULTHANDLER asks for it, have a stack in this thread."""
    faulthandler = sys.modules.get("faulthandler")
    if faulthandler is not None and faulthandler.is_enabled():
        faulthandler.disable()
        faulthandler.enable()


def run_worker(command: Command) -> Iterator[functools.partial[Any]]:
    """Yield the steps to the end of the process; who calls them must be no Python function.

    So the script's first frame is the first of all: no stack that it sees or prints holds one of ours.
    """
    results: List[int] = []
    if command.module:
        results.append(run_module(command.module))
    else:
        yield plan_script(command, results.append)
    code = 1 if results[0] == -1 else results[0]
    if results[0] == -1 and getattr(sys, "last_type", None) is KeyboardInterrupt:
        code = signal.SIGINT
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        interface.raise_exit_code()
    yield functools.partial(interface.exit_function(), code)


def plan_script(command: Command, on_result: Callable[[int], Any]) -> functools.partial[Any]:
    """Give the step that runs a script as the interpreter itself does."""
    name = command.argv[2]
    if sys.version_info >= (3, 9):
        name = os.path.join(command.cwd, name)
    path = os.fsencode(name)
    return functools.partial(interface.file_runner(on_result), interface.open_stream(path), path, 1, None)


def run_module(name: str) -> int:
    """Run a module as `python -m` does; returns the exit code, or -1 for an error, which is printed."""
    import runpy

    try:
        runpy._run_module_as_main(name)  # type: ignore[attr-defined]  # what the interpreter itself calls
    except SystemExit as error:
        return exit_code(error)
    except BaseException as error:  # noqa: BLE001, RUF100 - as the interpreter does
        print_error(error)
        return -1
    return 0


def exit_code(error: SystemExit) -> int:
    """Give the code of `sys.exit(...)`; what is no number is printed."""
    if error.code is None:
        return 0
    if isinstance(error.code, int):
        return error.code & 0xFF
    print(error.code, file=sys.stderr)
    return 1


def print_error(error: BaseException) -> None:
    """Let the hook print an error without the frame of `run_module`."""
    trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
    error.__traceback__ = trace
    sys.last_type, sys.last_value, sys.last_traceback = type(error), error, trace
    if sys.version_info >= (3, 12):
        sys.last_exc = error
    sys.excepthook(type(error), error, trace)
