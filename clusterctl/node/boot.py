# Must parse on Python 2.7 and 3.4 too, so that they can say that they are too old.
"""The first code on a node: takes the modules of one verb from stdin and runs the verb."""

import gc
import os
import sys

sys.path[:] = [entry for entry in sys.path if entry not in ("", ".")]  # no json.py of the home directory

TYPING = False
if TYPING:
    from typing import Any, Dict, Optional  # noqa: F401 - used in type comments, which Python 2 can read

    from ..protocol.messages.verbs import VerbHeader  # noqa: F401 - the same

OLDEST_PYTHON = (3, 8)
SEARCH_LIMIT = 0.5  # seconds

gc.set_threshold(20000, 20, 20)  # a verb is mostly its imports: counting garbage meanwhile costs 4 ms


def read_part(source):  # type: (Any) -> bytes
    """Read one length-prefixed part of the bootstrap; the client leaving early ends the process quietly."""
    length = source.readline()
    part = source.read(int(length)) if length.strip() else b""
    if not length.strip() or len(part) < int(length):
        sys.exit(1)
    return part


def refuse_old_python(sink):  # type: (Any) -> None
    """Answer with one error frame and the end."""
    import json

    version = ".".join(str(part) for part in sys.version_info[:3])
    message = "Python %s is too old (%s); clusterctl needs 3.8 or later on a node" % (version, sys.executable)
    error = {"code": "CC-PY-002", "message": message, "traceback": ""}
    for header in ({"error": error}, {"end": True}):
        text = json.dumps(header).encode("utf-8")
        sink.write(("%d 0\n" % len(text)).encode("ascii") + text)
    sink.flush()


def module_file(name):  # type: (str) -> str
    """Name a module's file in tracebacks; linecache asks the loader for names like this, not for <names>."""
    return name.replace(".", "/") + ".py"


class BundleImporter(object):
    """Finds the modules of package `clusterctl` in a dict of sources."""

    def __init__(self, sources):  # type: (Dict[str, str]) -> None
        self.sources = sources

    def find_spec(self, name, path=None, target=None):  # type: (str, Any, Any) -> Optional[Any]  # noqa: ARG002 - importlib's signature
        """Answer for our own packages only; they have no source."""
        if name not in self.sources:
            return None
        from importlib.machinery import ModuleSpec

        return ModuleSpec(name, self, origin=module_file(name), is_package=not self.sources[name])  # type: ignore[arg-type]  # a loader by shape

    def create_module(self, spec):  # type: (Any) -> None
        """Leave the making of the module to importlib."""

    def exec_module(self, module):  # type: (Any) -> None
        """Run the module's source in its namespace."""
        name = module.__name__
        exec(compile(self.sources[name], module_file(name), "exec"), module.__dict__)

    def get_source(self, name):  # type: (str) -> str
        """Make tracebacks show their lines."""
        return self.sources[name]


def read_buffered(source):  # type: (Any) -> bytes
    """Take what the buffered stdin has already swallowed of the frames that follow."""
    os.set_blocking(0, False)
    rest = source.peek()
    return bytes(rest)


def find_byte_code(header):  # type: (VerbHeader) -> Optional[str]
    """Return the zip with the byte code of this very payload, if an earlier run has left it here, whole and ours."""
    request = header["request"]  # type: Any
    try:
        top = os.path.realpath(os.path.expanduser(request["workdir"]))
        folder = os.path.join(top, header["payload"])
        for path in (top, os.path.dirname(folder), folder):
            status = os.lstat(path)
            if status.st_uid != os.geteuid() or status.st_mode & 0o022 or os.path.islink(path):
                return None
        for name in os.listdir(folder):
            if name.startswith("payload-%s-" % sys.implementation.cache_tag) and name.endswith(".zip"):
                return whole_file(os.path.join(folder, name))
    except OSError:
        pass
    return None


def find_in_time(header):  # type: (VerbHeader) -> Optional[str]
    """Return what `find_byte_code` does, unless the work directory's file system hangs, which a probe is to report."""
    from threading import Thread

    if not header.get("payload"):
        return None
    found = []
    search = Thread(target=lambda: found.append(find_byte_code(header)))
    search.daemon = True
    search.start()
    search.join(SEARCH_LIMIT)
    return found[0] if found else None


def whole_file(path):  # type: (str) -> Optional[str]
    """Return the path of a file whose name ends in its own hash."""
    from hashlib import sha256

    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        digest = sha256(file.read()).hexdigest()
    return path if path.endswith("-%s.zip" % digest) else None


def use_byte_code(path):  # type: (str) -> None
    """Import our modules from a zip; it is not on sys.path, where a probe looks for the account's packages."""
    package = type(sys)("clusterctl")
    package.__path__ = [path + "/clusterctl"]
    sys.modules["clusterctl"] = package


def add_modules(sources, bundle):  # type: (Dict[str, str], bytes) -> None
    """Take in the modules of a verb, and the packages that they are in; these hold nothing."""
    import json
    import zlib

    sources.update(json.loads(zlib.decompress(bundle).decode("utf-8")))
    for name in list(sources):
        parts = name.split(".")
        for depth in range(1, len(parts)):
            sources.setdefault(".".join(parts[:depth]), "")


def run_verb(header, stream):  # type: (VerbHeader, Any) -> bool
    """Call the verb; its failure becomes an error frame, and the end frame follows. False: the client has left."""
    from importlib import import_module

    try:
        try:
            module = header.get("module") or header["verb"]
            import_module("clusterctl.node.verbs." + module).run(header["request"], stream)
        except BrokenPipeError:
            raise
        except Exception as error:  # noqa: BLE001, RUF100 - whatever it is, the client must get it
            stream.send({"error": import_module("clusterctl.node.runtime.stream").describe_failure(error)})
        stream.send({"end": True})
    except BrokenPipeError:
        return False  # the client reads no more
    return True


def run_verbs(header, sources, pending, sink):  # type: (VerbHeader, Optional[Dict[str, str]], bytes, int) -> None
    """Run one verb after the other, as long as the client sends one: what they share is imported once."""
    from importlib import import_module

    stream = import_module("clusterctl.node.runtime.stream").Stream(0, sink, pending)
    while run_verb(header, stream):
        stream.send_timeout = stream.deadline = None
        frame = stream.receive()
        while frame is not None and "verb" not in frame[0]:  # one that was on its way to the verb before
            frame = stream.receive()
        if frame is None:
            return
        header = frame[0]
        if sources is not None:
            add_modules(sources, frame[1])
        os.set_blocking(sink, True)
        os.write(sink, ("\n%s\n" % header["sentinel"]).encode("ascii"))
        os.set_blocking(sink, False)


def boot():  # type: () -> None
    """Read header and bundle, answer with the sentinel, hand over to the verb."""
    import json

    source = getattr(sys.stdin, "buffer", sys.stdin)  # type: Any
    sink = getattr(sys.stdout, "buffer", sys.stdout)  # type: Any
    header = json.loads(read_part(source).decode("utf-8"))  # type: VerbHeader
    bundle = read_part(source)
    sink.write(("\n%s\n" % header["sentinel"]).encode("ascii"))
    sink.flush()
    if sys.version_info < OLDEST_PYTHON:
        return refuse_old_python(sink)
    path, sources = find_in_time(header), None  # type: Optional[str], Optional[Dict[str, str]]
    if path is not None:
        use_byte_code(path)
    else:
        sources = {}
        add_modules(sources, bundle)
        sys.meta_path.insert(0, BundleImporter(sources))
    output = os.dup(1)
    os.dup2(2, 1)  # a stray print must not break the frames
    return run_verbs(header, sources, read_buffered(source), output)


def exit_now():  # type: () -> None
    """End at once: taking the interpreter apart costs 4 ms of the node's time, and there is nothing to save."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(0)  # also where it is not read any more


if __name__ == "__main__":
    boot()
    exit_now()
