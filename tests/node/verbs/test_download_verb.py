"""The verb download against a stand-in for a hub: what comes, what other nodes get meanwhile, and what is refused."""

from __future__ import annotations

import json
import random
import signal
import threading
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hub import COMMIT, Hub, Repository, git_hash, serving, sha256
from pipenodes import PipeSession, session
from staging import staged
from waiting import HANG, wait_until

from clusterctl.errors import NodeError

MODEL = random.Random(1).randbytes(9_000_000)
SMALL = {"config.json": b'{"layers": 2}', "sub/vocabulary.txt": b"a\nb\n", "empty": b""}
FILES = {**SMALL, "model.safetensors": MODEL}
BLOBS = "models--org--name/blobs"
OFFER = {"address": "127.0.0.1", "ports": None, "token": "ab" * 16}


@pytest.fixture
def hub() -> Iterator[Hub]:
    """A hub with one model."""
    with serving(Hub({"models/org/name": Repository(FILES)})) as served:
        yield served


class Node:
    """A node that downloads, or takes from one that does."""

    def __init__(self, folder: Path, hub: Hub) -> None:
        self.workdir, self.to, self._hub = folder / "work", folder / "cache", hub

    def request(self, **changed: Any) -> dict[str, Any]:
        """Return a request for the whole model."""
        request: dict[str, Any] = {
            "do": "get",
            "run": "",
            "kind": "hf",
            "path": "org/name",
            "revision": "",
            "to": str(self.to),
            "name": "",
            "layout": "cache",
            "sha256": "",
            "variables": {"HF_ENDPOINT": self._hub.url, "MODELSCOPE_ENDPOINT": self._hub.url},
            "token": "",
            "most": 1000,
            "provide": None,
            "staged": None,
        }
        return {**request, **changed}

    def download(self, **changed: Any) -> dict[str, Any]:
        """Download, and return the last value of each answer."""
        with session(self.workdir, files=self.request(**changed)) as opened:
            return read_until(opened, "copied")

    def inspect(self, **changed: Any) -> dict[str, Any]:
        """Return what the node has."""
        with session(self.workdir, files=self.request(do="inspect", **changed)) as opened:
            reach: dict[str, Any] = read_until(opened, "reach")["reach"]
            return reach

    def tree(self) -> dict[str, bytes]:
        """Return all files below the place, with links followed."""
        return {
            path.relative_to(self.to).as_posix(): path.read_bytes()
            for path in self.to.rglob("*")
            if path.is_file()
        }

    @property
    def snapshot(self) -> dict[str, bytes]:
        """Return the files of the model as its library sees them."""
        prefix = f"hub/models--org--name/snapshots/{COMMIT}/"
        return {
            path[len(prefix) :]: content for path, content in self.tree().items() if path.startswith(prefix)
        }


def read_until(opened: PipeSession, key: str) -> dict[str, Any]:
    """Read answers until one has a key; returns all values, the last of each; the rows as they are."""
    values: dict[str, Any] = {}
    while True:
        frame = opened.receive(HANG)
        assert frame is not None, f"no {key}"
        header, body = frame
        values.update(header.as_object())
        if "rows" in header:
            values["rows"] = json.loads(zlib.decompress(body))
        if "waiting" in header:
            values.setdefault("texts", []).append(header.text("waiting"))
        if key in header:
            return values


@pytest.fixture
def node(tmp_path: Path, hub: Hub) -> Node:
    """A node with nothing."""
    return Node(tmp_path / "node", hub)


def test_a_model_is_laid_out_as_its_library_does(node: Node, hub: Hub) -> None:
    """Blobs by the hub's hashes, links and the name of the revision; every byte comes once."""
    answers = node.download()
    assert node.snapshot == FILES
    blobs = {sha256(MODEL), *map(git_hash, SMALL.values())}
    assert {path.name for path in (node.to / "hub" / BLOBS).iterdir()} == blobs
    assert (node.to / "hub/models--org--name/refs/main").read_text() == COMMIT
    link = node.to / f"hub/models--org--name/snapshots/{COMMIT}/sub/vocabulary.txt"
    assert str(link.readlink()) == f"../../../blobs/{git_hash(SMALL['sub/vocabulary.txt'])}"
    assert hub.count["bytes"] == sum(map(len, FILES.values()))
    assert answers["copied"]["files"] == len(FILES) + 1
    assert answers["resolved"]["revision"] == COMMIT
    assert answers["resolved"]["missing"] == len(MODEL) + len(COMMIT), "small files are here when it is known"
    hashes = {row[7] for row in answers["rows"] if row[2] == "file"}
    assert hashes == {sha256(content) for content in (*FILES.values(), COMMIT.encode())}


def test_the_library_itself_finds_the_model(node: Node) -> None:
    """Without network, as on a node."""
    library = pytest.importorskip("huggingface_hub")
    node.download()
    cache = str(node.to / "hub")
    snapshot = library.snapshot_download("org/name", cache_dir=cache, local_files_only=True)
    assert {path: Path(snapshot, path).read_bytes() for path in FILES} == FILES
    assert not library.scan_cache_dir(cache).warnings


def test_the_stand_in_is_a_hub_for_the_library(hub: Hub, tmp_path: Path) -> None:
    """What the verb is tested against serves the library as well, and the library makes the same files."""
    library = pytest.importorskip("huggingface_hub")
    made = library.snapshot_download("org/name", cache_dir=tmp_path / "theirs", endpoint=hub.url, token=False)
    ours = Node(tmp_path / "ours", hub)
    ours.download()
    names = {path.relative_to(made).as_posix() for path in Path(made).rglob("*") if path.is_file()}
    assert names == set(FILES)
    for folder in ("refs", "snapshots", "blobs"):
        here, there = (
            ours.to / "hub/models--org--name" / folder,
            tmp_path / "theirs/models--org--name" / folder,
        )
        assert tree_of(here) == tree_of(there)


def tree_of(root: Path) -> dict[str, str]:
    """Return the targets of links and the hashes of files below a directory."""
    return {
        path.relative_to(root).as_posix(): str(path.readlink())
        if path.is_symlink()
        else sha256(path.read_bytes())
        for path in root.rglob("*")
        if path.is_symlink() or path.is_file()
    }


def test_what_is_here_costs_one_request_or_none(node: Node, hub: Hub) -> None:
    """The commit of a name is asked for; a commit is not, and needs no network."""
    node.download()
    hub.count.clear()
    assert node.download()["copied"] == {
        "files": 0,
        "bytes": 0,
        "unchanged": len(FILES) + 1,
        "replaced": 0,
        "kept": [],
        "kept_count": 0,
    }
    assert hub.count == {"commit": 1}
    hub.count.clear()
    offline = {"HF_ENDPOINT": hub.url, "https_proxy": "http://127.0.0.1:9"}
    assert node.inspect(revision=COMMIT, variables=offline)["whole"]
    assert node.download(revision=COMMIT, variables=offline)["copied"]["unchanged"] == len(FILES)
    assert not hub.count


def test_a_new_commit_brings_what_is_new(node: Node, hub: Hub) -> None:
    """Contents that stayed are not downloaded again."""
    node.download()
    hub.count.clear()
    hub.repositories["models/org/name"] = Repository({**FILES, "config.json": b"new"}, commit="b" * 40)
    assert node.download()["resolved"]["revision"] == "b" * 40
    assert hub.count["bytes"] == len(b"new")
    assert (node.to / "hub/models--org--name/refs/main").read_text() == "b" * 40


def test_clean_removes_what_was_downloaded_only(node: Node) -> None:
    """Of a cache that was there before, a blob was missing: that blob and the links to it are not the user's."""
    node.download()
    before = node.snapshot
    (node.to / "hub" / BLOBS / sha256(MODEL)).unlink()
    link = node.to / f"hub/models--org--name/snapshots/{COMMIT}/model.safetensors"
    link.unlink()
    node.download(staged={"source": "hf://org/name", "revision": "", "tree": "", "by": "ann"})
    assert node.snapshot == before
    assert staged(node.workdir.parent, do="remove")["contents"] == 2
    assert node.snapshot == {path: content for path, content in before.items() if content != MODEL}


def test_a_damaged_file_is_downloaded_again(node: Node, hub: Hub) -> None:
    """Sizes alone do not count."""
    node.download()
    blob = node.to / "hub" / BLOBS / sha256(MODEL)
    blob.write_bytes(MODEL[:-1] + b"?")
    hub.count.clear()
    assert node.download()["copied"]["replaced"] == 1
    assert (blob.read_bytes() == MODEL, hub.count["bytes"]) == (True, len(MODEL))


def take(taker: Path, answers: dict[str, Any]) -> tuple[PipeSession, threading.Thread, dict[str, Any]]:
    """Begin to take everything that was listed from the node that downloads it."""
    opened = PipeSession(taker / "work", node="b", files=take_request(taker))
    rows = [[row[1], row[2], row[8] if row[2] == "file" else 0, row[7], row[3]] for row in answers["rows"]]
    opened.send({"manifest": True}, zlib.compress(json.dumps(rows).encode()))
    read_until(opened, "missing")
    opened.send({"source": {**OFFER, "port": answers["resolved"]["port"], "index": 1}})
    found: dict[str, Any] = {}
    thread = threading.Thread(target=lambda: found.update(read_until(opened, "copied")))
    thread.start()
    return opened, thread, found


def take_request(taker: Path) -> dict[str, Any]:
    """Return the request of a node that takes what another one downloads."""
    return {
        "run": "",
        "path": str(taker / "cache/hub"),
        "name": "models--org--name",
        "folder": True,
        "overwrite": False,
        "private": False,
        "provide": None,
        "staged": None,
    }


def test_another_node_has_it_while_it_is_downloaded(node: Node, hub: Hub, tmp_path: Path) -> None:
    """Most is on the second node while the hub still holds back the last piece; each byte leaves the hub once."""
    hub.gate = threading.Event()
    taker = tmp_path / "taker"
    with session(node.workdir, files=node.request(provide=OFFER)) as opened:
        answers = read_until(opened, "listed")
        receiving, thread, found = take(taker, answers)
        wait_until(
            lambda: written_below(taker / "cache") >= 8 << 20, "a part of the model on the second node"
        )
        assert not (taker / "cache/hub" / BLOBS / sha256(MODEL)).exists()
        hub.gate.set()
        read_until(opened, "copied")
        thread.join(HANG)
        receiving.close()
    assert found["copied"]["files"] == len(FILES) + 1
    assert Node(taker, hub).snapshot == FILES
    assert hub.count["bytes"] == sum(map(len, FILES.values()))


def written_below(root: Path) -> int:
    """Return how many bytes there are in files below a directory."""
    return sum(path.stat().st_size for path in root.rglob("*") if path.is_file() and not path.is_symlink())


def test_a_killed_download_is_continued(node: Node, hub: Hub) -> None:
    """What has come before is not downloaded again."""
    hub.gate = threading.Event()
    opened = PipeSession(node.workdir, files=node.request())
    read_until(opened, "listed")
    wait_until(lambda: written_below(node.to / "hub") >= 8 << 20, "a part of the model")
    opened.process.send_signal(signal.SIGKILL)
    opened.close()
    hub.gate.set()
    held = node.inspect()["held"]
    assert held >= 8 << 20
    hub.count.clear()
    node.download()
    assert node.snapshot == FILES
    assert hub.count["bytes"] <= len(MODEL) - (8 << 20), "the first segment is kept"


def test_a_client_that_leaves_ends_the_download(node: Node, hub: Hub) -> None:
    """No process stays, and what has come does."""
    hub.gate = threading.Event()
    opened = PipeSession(node.workdir, files=node.request())
    read_until(opened, "listed")
    wait_until(lambda: written_below(node.to / "hub") >= 8 << 20, "a part of the model")
    opened.hang_up()
    assert opened.process.wait(HANG) == 0
    opened.close()
    assert list((node.to / "hub").glob(".clusterctl-part-*"))


def test_a_part_that_is_wrong_is_downloaded_from_the_beginning(node: Node) -> None:
    """It is found by the hash of the whole."""
    (node.to / "hub").mkdir(parents=True)
    part = node.to / "hub" / f".clusterctl-part-{sha256(MODEL)}"
    part.write_bytes(b"?" * 1000)
    part.chmod(0o600)
    node.download()
    assert node.snapshot == FILES


@pytest.mark.parametrize("trouble", ["failing", "cut", "no ranges", "limited"])
def test_troubles_of_the_network_are_overcome(node: Node, hub: Hub, trouble: str) -> None:
    """A server that fails for a time, cuts connections, sends no parts, or wants to be left alone for a moment."""
    if trouble == "failing":
        hub.failing = 2
    elif trouble == "cut":
        hub.cut_after = 200_000
    elif trouble == "no ranges":
        hub.no_ranges, hub.cut_after = True, 200_000
    else:
        hub.limited = ["Retry-After: 0", 'RateLimit: "api";r=0;t=0']
    answers = node.download()
    assert node.snapshot == FILES
    if trouble == "limited":
        assert answers["texts"][0].endswith("limits the rate: it continues in 1 s")


def test_a_limit_that_is_too_long_is_reported(node: Node, hub: Hub) -> None:
    """The user need not wait for hours."""
    hub.limited = ["Retry-After: 3600"]
    with pytest.raises(NodeError, match=r"hf://org/name: .* refuses it .HTTP 429") as caught:
        node.download()
    assert caught.value.code == "CC-STAGE-013"


@pytest.mark.parametrize(
    ("changed", "code", "text"),
    [
        ({"path": "org/gated"}, "CC-STAGE-011", "hf://org/gated: .*HTTP 403: Access to model is restricted"),
        ({"path": "org/nothing"}, "CC-STAGE-012", "hf://org/nothing: .*HTTP 404: RepoNotFound"),
        ({"revision": "v9"}, "CC-STAGE-012", "hf://org/name@v9: .*HTTP 404: RevisionNotFound"),
        ({"kind": "url", "path": "URL/no.tar", "name": "no.tar"}, "CC-STAGE-012", "/no.tar: .*HTTP 404"),
        (
            {"variables": {"HF_ENDPOINT": "gopher://x"}},
            "CC-STAGE-014",
            "gopher://x is not the address of a hub",
        ),
        ({"variables": {"HF_ENDPOINT": "http://127.0.0.1:9"}}, "CC-STAGE-014", "cannot be reached: Conn"),
        ({"variables": {"HF_ENDPOINT": "http://no.such.host.invalid"}}, "CC-STAGE-014", "cannot be reached"),
    ],
)
def test_refusals_name_the_source_and_the_reason(
    node: Node, hub: Hub, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], code: str, text: str
) -> None:
    """With a code for each way out, and no file."""
    monkeypatch.setenv("no_proxy", "*")
    hub.repositories["models/org/gated"] = Repository(FILES, gated=True)
    changed = {
        key: value.replace("URL", hub.url) if key == "path" else value for key, value in changed.items()
    }
    with pytest.raises(NodeError, match=text) as caught:
        node.download(**changed)
    assert caught.value.code == code
    assert not node.tree()


def rename(to: str) -> Callable[[list[dict[str, Any]]], list[dict[str, Any]]]:
    """Return a change of a list that gives its first file another name."""
    return lambda rows: [{**rows[0], "path": to}, *rows[1:]]


@pytest.mark.parametrize("layout", ["cache", "directory"])
@pytest.mark.parametrize(
    "name", ["../out", "/etc/out", "a/../../out", ".", "a//b", "model.safetensors/x", "a\0b"]
)
def test_a_hub_cannot_name_what_is_outside(node: Node, hub: Hub, name: str, layout: str) -> None:
    """Refused before a byte of it comes."""
    hub.change_list = rename(name)
    with pytest.raises(NodeError) as caught:
        node.download(layout=layout)
    assert caught.value.code in ("CC-SYNC-007", "CC-STAGE-015")
    assert not hub.count["resolve"]
    assert not node.tree()


@pytest.mark.parametrize(
    "lie",
    [
        lambda _: {"not": "a list"},
        lambda _: [],
        lambda rows: [{**row, "size": -1, "lfs": {**row.get("lfs", {}), "size": "many"}} for row in rows],
        lambda rows: [{**row, "oid": "x", "lfs": {"oid": "../x", "size": 1}} for row in rows],
        lambda rows: rows * 20_000,
        lambda _: [{"path": "x" * (9 << 20)}],
    ],
    ids=["no list", "nothing", "sizes", "hashes", "many", "long"],
)
def test_a_list_that_is_none_is_refused(node: Node, hub: Hub, lie: Callable[[Any], Any]) -> None:
    """It costs a bounded amount of memory."""
    hub.change_list = lie
    with pytest.raises(NodeError) as caught:
        node.download()
    assert caught.value.code in ("CC-STAGE-015", "CC-SYNC-007")
    assert not node.tree()


@pytest.mark.parametrize("wrong", ["shorter", "longer", "other", "endless"])
@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
def test_contents_that_were_not_listed_do_not_stay(node: Node, hub: Hub, wrong: str, name: str) -> None:
    """A file gets its name only with the size and the hash of the list."""
    changes: dict[str, Callable[[bytes], bytes]] = {
        "shorter": lambda content: content[:-1],
        "longer": lambda content: content + b"!",
        "other": lambda content: b"!" + content[1:],
        "endless": lambda content: content * 3,
    }
    hub.change_content = lambda path, content: changes[wrong](content) if path == name else content
    with pytest.raises(NodeError, match=name) as caught:
        node.download()
    assert caught.value.code == "CC-STAGE-015"
    assert not [path for path in node.tree() if path.endswith(name)]
    assert sha256(FILES[name]) not in {sha256(content) for content in node.tree().values()}


def test_the_token_goes_to_the_hub_alone(node: Node, hub: Hub) -> None:
    """Not to the host of the files, into no file, and on no command line."""
    hub.repositories["models/org/name"] = Repository(FILES, gated=True)
    hub.gate = threading.Event()
    opened = PipeSession(node.workdir, files=node.request(token=hub.token))
    read_until(opened, "listed")
    assert hub.token.encode() not in Path(f"/proc/{opened.process.pid}/cmdline").read_bytes()
    hub.gate.set()
    read_until(opened, "copied")
    opened.close()
    assert dict(hub.tokens)["commit"] == f"Bearer {hub.token}"
    assert {token for kind, token in hub.tokens if kind == "large"} == {""}
    texts = [path.read_bytes() for path in node.workdir.rglob("*") if path.is_file()]
    assert texts
    assert not [text for text in texts if hub.token.encode() in text]


def test_plain_files_in_a_directory(node: Node, hub: Hub) -> None:
    """Same contents under two names come once."""
    hub.repositories["models/org/name"] = Repository({**FILES, "twin.safetensors": MODEL})
    node.download(layout="directory")
    assert node.tree() == {**FILES, "twin.safetensors": MODEL}
    assert hub.count["bytes"] == sum(map(len, FILES.values()))


def test_a_model_of_modelscope(node: Node, hub: Hub) -> None:
    """Where its library looks for it, and without a request for each file that is here."""
    node.download(kind="ms")
    prefix = "models/org--name/snapshots/master/"
    assert node.tree() == {prefix + path: content for path, content in FILES.items()}
    hub.count.clear()
    assert node.download(kind="ms", revision="master")["copied"]["files"] == 0
    assert hub.count["ms file"] == 0


@pytest.mark.parametrize("known", [True, False], ids=["with its hash", "without"])
def test_a_file_of_a_web_server(node: Node, hub: Hub, known: bool) -> None:
    """With a hash it is known at once what comes, and a second time costs no request."""
    hub.plain["/data.tar"] = MODEL
    request = {
        "kind": "url",
        "path": f"{hub.url}/data.tar?signature=secret",
        "name": "data.tar",
        "sha256": sha256(MODEL) if known else "",
        "layout": "directory",
    }
    answers = node.download(**request)
    assert node.tree() == {"data.tar": MODEL}
    assert answers["resolved"]["missing"] == (len(MODEL) if known else 0)
    hub.count.clear()
    assert node.download(**request)["copied"]["files"] == 0
    assert hub.count["plain"] == (0 if known else 1)
    assert hub.count["bytes"] <= 1
    assert not [path for path in node.workdir.rglob("*") if path.is_file() and b"secret" in path.read_bytes()]


def test_a_part_that_cannot_be_continued_is_removed(node: Node, hub: Hub) -> None:
    """Without a hash nothing shows whether it is of the same file."""
    hub.plain["/data.tar"] = MODEL
    requests: list[int] = []

    def stop(path: str, content: bytes) -> bytes:
        requests.append(len(path))
        if len(requests) > 1:  # after the one for its size
            hub.plain.pop(path, None)
            hub.cut_after = 2_000_000
        return content

    hub.no_ranges, hub.change_content = True, stop
    with pytest.raises(NodeError, match="HTTP 404"):
        node.download(kind="url", path=f"{hub.url}/data.tar", name="data.tar", layout="directory")
    assert not list(node.to.iterdir())


def test_versions_of_a_file_are_not_mixed(node: Node, hub: Hub) -> None:
    """It is another one after the connection was cut: what came of the first does not stay, though it has no hash."""
    later, requests = MODEL[::-1], []

    def change(path: str, content: bytes) -> bytes:
        requests.append(path)
        if len(requests) == 2:  # after the one for its size
            hub.cut_after, hub.plain[path] = 200_000, later
        return content

    hub.no_ranges, hub.change_content = True, change
    hub.plain["/data.tar"] = MODEL
    node.download(kind="url", path=f"{hub.url}/data.tar", name="data.tar", layout="directory")
    assert node.tree() == {"data.tar": later}


def test_a_model_of_modelscope_that_changed_is_seen(node: Node, hub: Hub) -> None:
    """Its revisions are names: the list is requested each time."""
    node.download(kind="ms")
    hub.repositories["models/org/name"] = Repository({**FILES, "config.json": b"new"})
    node.download(kind="ms")
    assert (node.to / "models/org--name/snapshots/master/config.json").read_bytes() == b"new"


def test_a_file_with_another_hash_is_refused(node: Node, hub: Hub) -> None:
    """What the user wrote counts."""
    hub.plain["/data.tar"] = MODEL
    with pytest.raises(NodeError, match=r"data\.tar: what came does not have the hash"):
        node.download(kind="url", path=f"{hub.url}/data.tar", name="data.tar", sha256="0" * 64)
    assert not node.tree()


def test_what_is_staged_is_recorded(node: Node) -> None:
    """With the commit that the name stood for, and the hash of the manifest."""
    node.download(staged={"source": "hf://org/name", "revision": "", "tree": "", "by": "ann@laptop"})
    (record,) = [json.loads(path.read_text()) for path in (node.workdir / "staged").glob("*/*.json")]
    assert (record["source"], record["revision"], record["by"]) == ("hf://org/name", COMMIT, "ann@laptop")
    assert record["path"] == str(node.to / "hub/models--org--name")
    assert record["bytes"] == sum(map(len, FILES.values())) + len(COMMIT)


def test_a_node_without_room_is_named_before_the_first_byte(node: Node, hub: Hub) -> None:
    """A list of more than any disk has."""
    hub.change_list = lambda rows: [
        {**row, "lfs": {**row["lfs"], "size": 1 << 49}} if "lfs" in row else row for row in rows
    ]
    with pytest.raises(NodeError, match=r"no room at .* are needed") as caught:
        node.download()
    assert caught.value.code == "CC-COPY-004"
    assert not hub.count["bytes"]


def test_a_list_writes_nothing(node: Node) -> None:
    """What would come, for a dry run."""
    with session(node.workdir, files=node.request(do="list")) as opened:
        answers = read_until(opened, "listed")
    assert {row[3] for row in answers["rows"] if row[2] == "file"} == {*map(len, FILES.values()), len(COMMIT)}
    assert not list(node.to.rglob("*"))
    assert not node.workdir.exists()


def test_a_second_download_to_the_same_place_waits(node: Node, hub: Hub) -> None:
    """And finds everything there."""
    hub.gate = threading.Event()
    staged = {"source": "hf://org/name", "revision": "", "tree": "", "by": "ann@laptop"}
    with session(node.workdir, files=node.request(staged=staged)) as first:
        read_until(first, "listed")
        with session(node.workdir, files=node.request(staged={**staged, "by": "ben@desk"})) as second:
            assert read_until(second, "held_by")["held_by"] == "ann@laptop (gpu01)"
            hub.gate.set()
            read_until(first, "copied")
            assert read_until(second, "copied")["copied"]["files"] == 0
    assert hub.count["bytes"] == sum(map(len, FILES.values()))


def test_many_small_files_need_few_descriptors(node: Node, hub: Hub) -> None:
    """A data set of thousands of files, on a node that allows few open ones."""
    files = {f"part/{number}.json": b"%d" % number for number in range(1500)}
    hub.repositories["models/org/name"] = Repository(files)
    limited = ["sh", "-c", 'ulimit -n 64; exec "$@"', "sh"]
    with session(node.workdir, files=node.request(layout="directory"), command=limited) as opened:
        read_until(opened, "copied")
    assert node.tree() == files
