"""Calls of the kernel, the C library and Python's C interface for which the standard library has no function."""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, List, Mapping, Sequence

PR_SET_NAME = 15
PR_SET_MM = 35
PR_SET_MM_MAP = 14
NO_FILE = 0xFFFFFFFF
STAT_FIELDS = {  # proc_pid_stat(5) counts from 1
    "start_code": 26,
    "end_code": 27,
    "start_stack": 28,
    "start_data": 45,
    "end_data": 46,
    "start_brk": 47,
}
ADDRESSES = (
    *("start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack"),
    *("arg_start", "arg_end", "env_start", "env_end", "auxv"),
)


class MemoryMap(ctypes.Structure):
    """Struct prctl_mm_map: where the kernel finds a process's arguments and environment, among others."""

    _fields_ = [
        *((name, ctypes.c_uint64) for name in ADDRESSES),
        ("auxv_size", ctypes.c_uint32),
        ("exe_fd", ctypes.c_uint32),
    ]


def show_command(argv: Sequence[bytes], env: Sequence[bytes]) -> None:
    """Show these in /proc/PID/cmdline and /proc/PID/environ; OSError where the kernel does not allow it.

    The memory is never freed: the kernel reads it until the process ends.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = libc.malloc.restype = ctypes.c_void_p
    arguments, variables = (b"".join(word + b"\0" for word in words) for words in (argv, env))
    content = arguments + variables
    address = libc.malloc(ctypes.c_size_t(len(content) + 1))
    ctypes.memmove(address, content, len(content))
    with open("/proc/self/stat", "rb") as source:
        fields = source.read().rpartition(b")")[2].split()
    known = {name: int(fields[number - 3]) for name, number in STAT_FIELDS.items()}
    middle, end = address + len(arguments), address + len(content)
    places = {"arg_start": address, "arg_end": middle, "env_start": middle, "env_end": end}
    layout = MemoryMap(brk=libc.sbrk(ctypes.c_long(0)), exe_fd=NO_FILE, **known, **places)
    size = ctypes.c_ulong(ctypes.sizeof(layout))
    if libc.prctl(PR_SET_MM, ctypes.c_ulong(PR_SET_MM_MAP), ctypes.byref(layout), size, ctypes.c_ulong(0)):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    libc.prctl(PR_SET_NAME, os.path.basename(argv[0])[:15], *[ctypes.c_ulong(0)] * 3)


def file_runner(on_result: Callable[[int], Any]) -> Any:
    """Return the interpreter's own function that runs an open file as `__main__`; it prints the error, too.

    It is called as (stream, name, whether to close, None); then `on_result` gets 0, or -1 after an error.
    """
    run = ctypes.PyDLL(None).PyRun_SimpleFileExFlags
    run.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int, ctypes.c_void_p]
    run.restype = on_result
    return run


def open_stream(path: bytes) -> int:
    """Open a file for reading as a `FILE *` of the C library; OSError if it cannot be opened."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.fopen.restype = ctypes.c_void_p
    stream = libc.fopen(ctypes.c_char_p(path), ctypes.c_char_p(b"rbe"))
    if not stream:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), os.fsdecode(path))
    return int(stream)


def exit_function() -> Any:
    """Return the interpreter's own function that takes it apart and ends the process with a code."""
    leave = ctypes.PyDLL(None).Py_Exit
    leave.argtypes = [ctypes.c_int]
    leave.restype = None
    return leave


def raise_exit_code() -> None:
    """Let the process end by the signal whose number is its exit code: so ends an interpreter after Ctrl-C."""
    libc = ctypes.CDLL(None)
    libc.on_exit(getattr(libc, "raise"), None)


def render_variables(env: Mapping[str, str]) -> List[bytes]:
    """Give variables as a process gets them."""
    return [os.fsencode(name) + b"=" + os.fsencode(value) for name, value in env.items()]
