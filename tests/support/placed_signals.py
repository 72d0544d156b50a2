"""A signal at one exact place of a command: at the nth call of its main thread that waits, or the nth end of an import.

Python runs the handler of a signal between two instructions of the main thread. A profiler of that thread is called
there: it counts, and raises the signal in place. Nothing depends on how fast the machine is.
"""

from __future__ import annotations

from pathlib import Path

SITECUSTOMIZE = """
import os, signal, sys, threading, time

kind, count, number, late, log = os.environ.pop("PLACED_SIGNAL").split(",", 4)
count, number, main = int(count), int(number), threading.main_thread()
WAITS = {"acquire", "poll", "select", "recv", "read", "get", "sleep", "waitpid", "send", "wait", "connect", "flock",
         "write", "flush", "accept", "readline", "lock"}
seen = 0


def note(frame, event, arg):
    global seen
    code = frame.f_code
    if kind == "import":
        hit = event == "return" and code.co_name == "cb" and "_bootstrap" in code.co_filename
    else:
        hit = event == "c_return" and arg.__name__ in WAITS and "importlib" not in code.co_filename
        hit = hit and not (arg.__name__ == "get" and hasattr(arg.__self__, "keys"))
    if hit:
        seen += 1
        if seen >= count:
            place(f"{code.co_filename}:{frame.f_lineno} {getattr(arg, '__name__', event)}")


def place(where):
    sys.setprofile(None)
    if os.path.exists(log):  # it was too late
        return
    with open(log, "w") as file:
        ended = signal.getsignal(number) is signal.SIG_IGN  # the verb is over, and its exit code is on its way
        file.write("after the end" if ended else f"{seen} {where}")
    os.kill(os.getpid(), number) if threading.current_thread() is not main else signal.raise_signal(number)


def give_up():
    time.sleep(float(late))
    if not os.path.exists(log):
        with open(log, "w") as file:
            file.write("too late")
        os.kill(os.getpid(), number)


threading.Thread(target=give_up, daemon=True).start()
sys.setprofile(note)
"""
NOT_REACHED = ("", "too late", "after the end")  # what is written instead of the place
LATE = 30.0  # seconds after which the signal comes anywhere: the place was not reached


def write_sitecustomize(folder: Path) -> None:
    """Write what a Python with this folder in its PYTHONPATH runs first."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(SITECUSTOMIZE)


def placed_environment(
    folder: Path, kind: str, count: int, number: int, log: Path, late: float = LATE
) -> dict[str, str]:
    """Give the variables that place a signal; `log` then holds where it was."""
    return {"PYTHONPATH": str(folder), "PLACED_SIGNAL": f"{kind},{count},{number},{late},{log}"}
