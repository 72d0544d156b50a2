"""What a forked process changes to be what `python -u SCRIPT` or `python -u -m MODULE` would be, and its run.

A difference that matters to scripts is undone here, or is a reason not to fork (`obstacles.py`). What remains is listed
in decision 68: frames of ours below the script's, and the command line and variables that /proc shows.
"""

from __future__ import annotations

import builtins
import gc
import importlib.machinery
import io
import os
import sys
import threading
import types
from contextlib import suppress
from typing import Any, Dict, List, NamedTuple

from ..diagnose import group as watched_group
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
