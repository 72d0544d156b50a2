"""Small jobs that observe all that they can: each is run with forked and with exec'ed workers, and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

OBSERVE = """
import json, os, sys
seen = {"globals": list(globals())[:9], "file": __file__, "name": __name__, "loader": type(__loader__).__name__}
seen["spec"] = repr(__spec__)
import faulthandler, gc, inspect, locale, resource, signal, threading, time, warnings
fds = [n for n in os.listdir("/proc/self/fd") if os.path.exists("/proc/self/fd/" + n)]
seen["fds"] = sorted(os.readlink("/proc/self/fd/" + n) for n in fds)
seen["argv"], seen["orig_argv"] = sys.argv, getattr(sys, "orig_argv", None)
seen["path"], seen["cwd"], seen["executable"] = sys.path, os.getcwd(), sys.executable
seen["prefixes"] = [sys.prefix, sys.base_prefix, sys.exec_prefix]
seen["env"] = dict(os.environ)
seen["flags"], seen["options"] = repr(sys.flags), [sys._xoptions, sys.warnoptions]
def read(name):
    with open("/proc/self/" + name, "rb") as source:
        return source.read().decode("utf-8", "replace")
seen["proc"] = {name: read(name) for name in ("comm", "limits", "cgroup", "oom_score_adj")}
seen["exe"] = os.readlink("/proc/self/exe")
status = dict(line.split(":", 1) for line in read("status").splitlines())
names = ("SigBlk", "SigIgn", "SigCgt", "SigPnd", "Umask", "Threads", "NoNewPrivs", "CapEff", "Cpus_allowed", "NSpid")
seen["status"] = {name: status.get(name, "").strip() for name in names if name != "NSpid"}
seen["status"]["SigCgt"] = f"{int(status['SigCgt'], 16) & ~(3 << 31):x}"  # 32 and 33 are the C library's own
seen["ids"] = [os.getpid() == os.getsid(0) == os.getpgid(0), os.getuid(), os.getgid(), os.getgroups(), os.nice(0)]
with open(f"/proc/{os.getppid()}/cmdline") as source:
    seen["parent"] = "payload.zip" in source.read()
seen["parents_group"] = os.getpgid(os.getppid()) == os.getppid()
seen["affinity"] = sorted(os.sched_getaffinity(0))
seen["limits"] = [resource.getrlimit(getattr(resource, n)) for n in dir(resource) if n.startswith("RLIMIT_")]
children = resource.getrusage(resource.RUSAGE_CHILDREN)
seen["children"] = [children.ru_utime, children.ru_stime]
seen["handlers"] = [repr(signal.getsignal(number)).split(" at ")[0] for number in sorted(signal.valid_signals())]
seen["timer"], seen["wakeup"] = signal.getitimer(signal.ITIMER_REAL), signal.set_wakeup_fd(-1)
seen["parent_death"] = None
import ctypes
number = ctypes.c_int()
ctypes.CDLL(None).prctl(2, ctypes.byref(number), 0, 0, 0)
seen["parent_death"] = number.value
ctypes.CDLL(None).prctl(37, ctypes.byref(number), 0, 0, 0)
seen["subreaper"] = number.value
def describe(stream):
    return [stream.name, stream.encoding, stream.errors, stream.mode, stream.line_buffering, stream.write_through,
            type(stream.buffer).__name__, stream.isatty(), stream.fileno(), stream.newlines]
seen["streams"] = [describe(stream) for stream in (sys.stdin, sys.stdout, sys.stderr)]
seen["standard"] = [sys.stdin is sys.__stdin__, sys.stdout is sys.__stdout__, sys.stderr is sys.__stderr__]
seen["stdin"] = sys.stdin.read()
seen["threads"] = [[t.name, t.daemon, t is threading.main_thread()] for t in threading.enumerate()]
seen["native"] = threading.get_native_id() == os.getpid() == threading.main_thread().native_id
seen["stack_size"], seen["recursion"] = threading.stack_size(), sys.getrecursionlimit()
seen["gc"] = [gc.isenabled(), gc.get_threshold(), gc.get_debug(), len(gc.callbacks), len(gc.garbage)]
seen["locale"] = [locale.setlocale(locale.LC_ALL), sys.getfilesystemencoding(), time.tzname, time.timezone]
seen["faulthandler"] = faulthandler.is_enabled()
seen["hooks"] = [sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, sys.gettrace(),
                 sys.getprofile(), sys.displayhook is sys.__displayhook__, threading.excepthook.__name__]
seen["last"] = [hasattr(sys, name) for name in ("last_type", "last_value", "last_traceback", "ps1")]
seen["bytecode"] = [sys.dont_write_bytecode, sys.pycache_prefix]
seen["main"] = sys.modules["__main__"].__dict__ is globals()
import torch, torch.distributed, numpy, random, multiprocessing, multiprocessing.process, uuid, tempfile
seen["multiprocessing"] = [multiprocessing.process.ORIGINAL_DIR, multiprocessing.current_process().name,
                           multiprocessing.parent_process(), multiprocessing.get_start_method(True),
                           multiprocessing.active_children()]
seen["torch"] = [torch.get_num_threads(), torch.get_num_interop_threads(), torch.cuda.is_initialized(),
                 torch.cuda._is_in_bad_fork(),
                 str(torch.distributed.get_debug_level()), torch.is_grad_enabled(), str(torch.get_default_dtype())]
seen["warnings"] = [str(entry[:2]) + str(entry[2:]) for entry in warnings.filters]
seen["threads_after_import"] = int(dict(l.split(":", 1) for l in read("status").splitlines())["Threads"])
seen["hidden"] = [name for name in sys.modules if name.partition(".")[0] == "clusterctl"]
own = [random.random(), numpy.random.rand(), uuid.uuid4().hex, tempfile.mktemp(), os.urandom(4).hex(),
       multiprocessing.current_process().authkey.hex(), torch.initial_seed(),
       torch.rand(1).item(), torch.randperm(1 << 20)[0].item()]
print(json.dumps({"seen": seen, "own": own}))
"""

ENDING = """
import torch
import atexit, logging, os, sys, tempfile, threading, time, weakref
atexit.register(print, "first registered")
atexit.register(lambda: print("second registered", threading.current_thread().name, "__file__" in globals()))
class Loud:
    def __init__(self, name): self.name = name
    def __del__(self): os.write(1, f"del {self.name}\\n".encode())
module_level = Loud("global")
keep = Loud("finalized")
weakref.finalize(keep, print, "finalize")
def work():
    time.sleep(0.3); print("thread done", threading.main_thread().is_alive())
threading.Thread(target=work).start()
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
logging.warning("to the log")
sys.stdout.write("no newline at the end")
"""

FRAMES = """
import faulthandler, inspect, logging, sys, traceback, warnings
logging.basicConfig(format="%(funcName)s %(lineno)d %(processName)s %(threadName)s %(message)s", stream=sys.stdout)
def inner():
    traceback.print_stack(file=sys.stdout)
    print([frame.filename for frame in inspect.stack()][:2])
    faulthandler.dump_traceback(file=sys.stdout)
    warnings.warn("up", stacklevel=2)
    warnings.warn("far up", stacklevel=50)
    logging.warning("logged", stack_info=True)
inner()
"""

DEEP = """
import sys
sys.setrecursionlimit(20000)
def down(n): return 0 if n == 0 else 1 + down(n - 1)
print(down(15000))
def endless(): return endless()
try: endless()
except RecursionError as error: print(error)
import json
value = []
for _ in range(900): value = [value]
print(len(json.dumps(value)))
"""

CHAIN = """
class Own(Exception): pass
def third(): raise KeyError("third")
def second():
    try: third()
    except KeyError as error: raise Own("second") from error
try: second()
except Own:
    raise ValueError("first\\nof two lines")
"""

PROCESSES = """
import multiprocessing, os, subprocess, sys
def square(n): return n * n
def describe(_): return [__name__, sys.argv, os.getcwd(), sys.path[0], multiprocessing.current_process().name]
if __name__ == "__main__":
    for method in ("spawn", "forkserver", "fork"):
        context = multiprocessing.get_context(method)
        with context.Pool(1) as pool:
            print(method, pool.map(square, [2, 3]), pool.map(describe, [0]))
        queue = context.Queue()
        process = context.Process(target=queue.put, args=(7,))
        process.start(); print(queue.get()); process.join(); print(process.exitcode)
    print(subprocess.run([sys.executable, "-c", "import sys; print(sys.argv, len(sys.path))"], capture_output=True))
    pid = os.fork()
    if pid == 0: os._exit(4)
    print(os.waitpid(pid, 0)[1])
    try: print(os.waitpid(-1, os.WNOHANG))
    except ChildProcessError as error: print(error)
"""

LOADER = """
import torch
from torch.utils.data import DataLoader, Dataset
class Numbers(Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return torch.tensor(index)
if __name__ == "__main__":
    for method in (None, "spawn", "forkserver"):
        loader = DataLoader(Numbers(), 4, num_workers=2, multiprocessing_context=method)
        print(method, [batch.tolist() for batch in loader])
"""

TRAINING = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)))
optimizer = torch.optim.AdamW(model.parameters())
for step in range(5):
    loss = model(torch.randn(128, 64) + dist.get_rank()).pow(2).mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    total = loss.detach().clone(); dist.all_reduce(total)
    print(step, round(total.item(), 4), torch.get_num_threads())
box = [None, None]; dist.all_gather_object(box, {"rank": dist.get_rank()}); print(box)
print(torch.linalg.svdvals(torch.ones(64, 64))[0].round().item(), (torch.ones(300, 300) @ torch.ones(300, 300))[0, 0])
dist.barrier(); dist.destroy_process_group()
"""

RECORD = """
import os, sys
from torch.distributed.elastic.multiprocessing.errors import record
def step(): raise RuntimeError("loss is nan")
@record
def main(): step()
main()
"""

SIGNALS = """
import os, signal, sys, time
def save(number, frame):
    print("saving", signal.Signals(number).name, frame.f_code.co_name); sys.exit(9)
if os.environ["RANK"] == "0":
    signal.signal(signal.SIGTERM, save)
    signal.signal(signal.SIGALRM, lambda *_: print("alarm"))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    open("ready", "w").close()
    while True: time.sleep(60) if False else signal.pause()
while not os.path.exists("ready"): time.sleep(0.02)
time.sleep(0.5)
os.remove("ready")
sys.exit(5)
"""

ASYNC = """
import asyncio, concurrent.futures, signal, threading
async def main():
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, lambda: print("usr1"))
    signal.raise_signal(signal.SIGUSR1)
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(await loop.run_in_executor(pool, lambda: threading.current_thread().name))
    process = await asyncio.create_subprocess_exec("sh", "-c", "exit 3")
    print(await process.wait())
asyncio.run(main())
with concurrent.futures.ProcessPoolExecutor(1) as pool: print(list(pool.map(abs, [-1, -2])))
timer = threading.Timer(0.05, print, ["timer"]); timer.start(); timer.join()
"""

MAIN_MODULE = """
import __main__, dataclasses, inspect, pickle, sys, typing
@dataclasses.dataclass
class Point:
    x: int
    y: "int" = 0
def function(): return 1
print(pickle.loads(pickle.dumps(Point(1))), typing.get_type_hints(Point), __main__.Point is Point)
print(inspect.getsource(function), inspect.getsourcefile(Point), inspect.getfile(sys.modules["__main__"]))
print(sys.modules[Point.__module__] is __main__, sorted(name for name in dir() if name.startswith("__")))
"""

TOOLS = """
import sys, tracemalloc
events = []
sys.settrace(lambda frame, event, _: events.append((event, frame.f_code.co_name)))
def traced(): return 1
traced()
sys.settrace(None)
calls = []
sys.setprofile(lambda frame, event, _: calls.append(event))
traced()
sys.setprofile(None)
tracemalloc.start(); held = bytearray(1 << 20); print(tracemalloc.get_traced_memory()[0] > 1 << 19)
print(events, calls)
import code, pdb, cProfile
profile = cProfile.Profile(); profile.runcall(traced); print(len(profile.getstats()))
"""

UNRAISABLE = """
import os, sys, threading
class Bad:
    def __del__(self): raise ValueError("in del")
Bad()
thread = threading.Thread(target=lambda: 1 / 0, name="worker"); thread.start(); thread.join()
sys.excepthook = lambda kind, error, trace: print("own hook", kind.__name__, error, trace.tb_lineno)
raise LookupError("seen by the hook")
"""

SELF_EXEC = """
import os, sys
if os.environ.get("AGAIN"): print("again", sys.argv, os.getsid(0) == os.getpid()); sys.exit(6)
os.environ["AGAIN"] = "1"
os.execv(sys.executable, [sys.executable, *sys.argv])
"""

PACKAGE = {
    "pkg/__init__.py": "print('package', __name__)\n",
    "pkg/__main__.py": "import sys; print('main', sys.argv, __package__, __spec__.name, sys.path[0])\n",
    "pkg/train.py": (
        "import sys, os, multiprocessing, multiprocessing.process\nfrom . import helper\n"
        "print(sys.argv, sys.orig_argv, __name__, __package__, __file__, __spec__.origin, list(globals())[:9])\n"
        "print(multiprocessing.process.ORIGINAL_DIR, sys.path[0])\n"
        "sys.exit(helper.end(sys.argv[1:]))\n"
    ),
    "pkg/helper.py": (
        "def end(words):\n    if words[:1] == ['raise']: raise ValueError(words)\n"
        "    return words[0] if words and not words[0].isdigit() else int(words[0]) if words else None\n"
    ),
}


@dataclass(frozen=True)
class Case:
    """A job: its script, other files, torchrun's words from the script on, and the gate's variables."""

    script: str = ""
    argv: tuple[str, ...] = ("train.py",)
    files: Mapping[str, str] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    workers: int = 1


def module(*words: str) -> Case:
    """Run a module of a package."""
    return Case(argv=("--module", *words), files=PACKAGE)


# What prints whole stacks shows our frames below those of the script.
DUMPING = ("frames", "aborted-faulthandler", "segfault-faulthandler")
ABORT = "import os, torch\nos.abort()\n"
SEGFAULT = "import ctypes, torch\ndef read(): ctypes.string_at(0)\nread()\n"
CASES: Mapping[str, Case] = {
    "observe": Case(OBSERVE, ("train.py", "--run", "a b", "", "grün"), workers=2),
    "ending": Case(ENDING),
    "frames": Case(FRAMES),
    "deep": Case(DEEP),
    "chained-traceback": Case(CHAIN),
    "syntax-error": Case("import os\nprint('not reached'\n"),
    "import-error": Case("import no_such_module\n"),
    "exit-number": Case("import sys; sys.exit(7)"),
    "exit-300": Case("raise SystemExit(300)"),
    "exit-none": Case("import sys; print('x', end=''); sys.exit()"),
    "exit-text": Case("import sys; sys.exit('what went wrong')"),
    "exit-object": Case("raise SystemExit({'a': 1})"),
    "exit-at-once": Case("import atexit, os\natexit.register(print, 'never')\nos._exit(3)"),
    "exit-in-atexit": Case(
        "import atexit, sys\natexit.register(sys.exit, 4)\natexit.register(lambda: 1 / 0)"
    ),
    "killed": Case("import os\nprint('so far'); os.kill(os.getpid(), 9)"),
    "terminated": Case("import os, time\nos.kill(os.getpid(), 15); time.sleep(60)"),
    "interrupted": Case(
        "import atexit, os, time\natexit.register(print, 'end')\nos.kill(os.getpid(), 2); time.sleep(60)"
    ),
    "aborted": Case(ABORT),
    "aborted-faulthandler": Case(ABORT, env={"PYTHONFAULTHANDLER": "1"}),
    "segfault-faulthandler": Case(SEGFAULT, env={"PYTHONFAULTHANDLER": "1"}),
    "broken-pipe": Case("import os\nr, w = os.pipe(); os.close(r)\nos.write(w, b'x')"),
    "closed-stdout": Case("import sys\nsys.stdout.close()\nsys.stderr.write('still')"),
    "full-disk": Case(
        "import os, sys\nsys.stdout.reconfigure(write_through=False)\n"
        "fd = os.open('/dev/full', 1); os.dup2(fd, 1); print('lost')"
    ),
    "reconfigured": Case(
        "import sys\nsys.stdout.reconfigure(encoding='latin-1', line_buffering=True); print('grün')"
    ),
    "processes": Case(PROCESSES),
    "data-loader": Case(LOADER),
    "training": Case(TRAINING, workers=2),
    "recorded-error": Case(RECORD),
    "one-fails": Case(SIGNALS, workers=2),
    "asyncio": Case(ASYNC),
    "main-module": Case(MAIN_MODULE),
    "tools": Case(TOOLS),
    "unraisable": Case(UNRAISABLE),
    "exec-itself": Case(SELF_EXEC),
    "module": module("pkg.train"),
    "module-arguments": module("pkg.train", "3", "--x"),
    "module-raises": module("pkg.train", "raise", "x"),
    "module-exit-text": module("pkg.train", "text"),
    "module-package": module("pkg", "a"),
    "module-missing": module("pkg.nothing"),
    "module-profiled": Case(
        "print('profiled', __name__)\nimport sys; sys.exit(2)",
        ("--module", "cProfile", "-o", "out", "train.py"),
    ),
    "script-below": Case(
        argv=("./sub/../sub/run.py", "x"),
        files={"sub/run.py": "import sys, near\nprint(sys.path[0], sys.argv, __file__)", "sub/near.py": ""},
    ),
    "script-encoding": Case("# -*- coding: latin-1 -*-\nprint(ascii('\\u00e4'), __doc__)"),
    "optimized": Case("assert False\nprint('asserts are off', __debug__)", env={"PYTHONOPTIMIZE": "1"}),
    "warnings": Case(
        "import warnings\nwarnings.warn('w', DeprecationWarning)\nx = 1 is 1",
        env={"PYTHONWARNINGS": "default"},
    ),
    "own-package-name": Case(
        "import clusterctl\nprint(clusterctl.value)", files={"clusterctl.py": "value = 5\n"}
    ),
    "hostile-variables": Case(
        "import os\nprint({k: v for k, v in os.environ.items() if k[:2] == 'X_'})",
        env={"X_A": "a\nb", "X_B": "=", "X_C": "\udcff\u65e5", "X_D": ""},
    ),
    "limits": Case(
        "import resource, threading\nprint(resource.getrlimit(resource.RLIMIT_NOFILE))\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 40, 1 << 40))\nprint(threading.stack_size())"
    ),
}
