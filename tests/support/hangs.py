"""Programs that hang, each in its own way, and what `diagnose` must answer.

As a program it starts the ranks of each case that is named after a folder as forks of one process, which has loaded
torch once, and prints the case, the rank and the pid of each. Below torchrun it is a rank of the case HANG.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import queue
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

FOREVER = 100_000.0  # seconds
torch: Any = None  # loaded by the process that starts the ranks
dist: Any = None


@dataclass(frozen=True)
class Hang:
    """A case: what each rank runs, and the answer: its code, the ranks it accuses, and what its sentence says."""

    run: Callable[[int], None]
    code: str
    suspects: tuple[int, ...]
    says: tuple[str, ...]
    ranks: int = 3
    common: bool = False
    joins: bool = True  # all ranks form a process group first
    compiles: bool = False

    @property
    def name(self) -> str:
        """Return its name."""
        return self.run.__name__


CASES: dict[str, Hang] = {}


def hang(code: str, suspects: tuple[int, ...], *says: str, **more: Any) -> Callable[[Any], Any]:
    """Register a case."""

    def register(run: Callable[[int], None]) -> Callable[[int], None]:
        CASES[run.__name__] = Hang(run, code, suspects, says, **more)
        return run

    return register


def ones(size: int = 1000) -> Any:
    """Make a tensor."""
    return torch.ones(size)


def load_batch() -> None:
    """Take forever."""
    time.sleep(FOREVER)


def reduce(group: Any = None) -> None:
    """Enter a collective."""
    dist.all_reduce(ones(), group=group)


MISSING = ("has not entered", "have waited for it")

# one rank is elsewhere


@hang("CC-HANG-004", (1,), "in load_batch(): time.sleep(FOREVER)", "2 ranks have waited", common=True)
def sleeps(rank: int) -> None:
    """The plain case."""
    if rank == 1:
        load_batch()
    reduce()


@hang("CC-HANG-004", (1,), "in loops()", "uses a processor")
def loops(rank: int) -> None:
    """An endless loop of Python."""
    while rank == 1:
        pass
    reduce()


@hang("CC-HANG-004", (0,), "in evaluate()", "uses a processor: it may evaluate", common=True)
def evaluates(rank: int) -> None:
    """Rank 0 computes while the others wait for it."""

    def evaluate() -> None:
        matrix = torch.ones(200, 200)
        while True:
            matrix = torch.mm(matrix, matrix) / 200

    if rank == 0:
        evaluate()
    dist.barrier()


@hang("CC-HANG-004", (1,), "in full_queue()")
def full_queue(rank: int) -> None:
    """A queue that no thread reads."""
    full: queue.Queue[int] = queue.Queue(1)
    while rank == 1:
        full.put(0)
    reduce()


@hang("CC-HANG-004", (1,), "in event()")
def event(rank: int) -> None:
    """An event that no thread sets."""
    if rank == 1:
        threading.Event().wait()
    reduce()


@hang("CC-HANG-004", (1,), "in lock(): mine.acquire()")
def lock(rank: int) -> None:
    """A lock that is taken twice."""
    mine = threading.Lock()
    while rank == 1:
        mine.acquire()
    reduce()


@hang("CC-HANG-004", (1,), "in file_lock(): fcntl.flock(")
def file_lock(rank: int) -> None:
    """A file that another rank has locked."""
    import fcntl

    path = shared("lock")
    dist.barrier()
    if rank != 0:
        dist.barrier()
    with path.open("w", encoding="ascii") as file:
        if rank < 2:
            fcntl.flock(file, fcntl.LOCK_EX)
        if rank == 0:
            dist.barrier()
            time.sleep(0.2)
        reduce()


@hang("CC-HANG-004", (1,), "in fifo()")
def fifo(rank: int) -> None:
    """A pipe that no process writes into."""
    if rank == 1:
        path = shared("fifo")
        os.mkfifo(path)
        path.read_text()
    reduce()


@hang("CC-HANG-004", (1,), "in other_program()")
def other_program(rank: int) -> None:
    """A program that the rank has started."""
    if rank == 1:
        subprocess.run(["sleep", str(FOREVER)], check=False)
    reduce()


@hang("CC-HANG-004", (1,), "in server()")
def server(rank: int) -> None:
    """A server that does not answer."""
    if rank == 1:
        listener = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(listener.getsockname()).recv(1)
    reduce()


@hang("CC-HANG-004", (1,), "in pool()")
def pool(rank: int) -> None:
    """A pool whose worker was killed."""
    import multiprocessing

    if rank == 1:
        with multiprocessing.get_context("fork").Pool(1) as workers:
            workers.map(kill_me, [1])
    reduce()


def kill_me(_: int) -> None:
    """End this process."""
    os.kill(os.getpid(), signal.SIGKILL)


class StuckData:
    """A dataset whose third sample never comes."""

    def __len__(self) -> int:
        """Return the number of samples."""
        return 8

    def __getitem__(self, index: int) -> Any:
        """Load a sample."""
        while index == 3:
            load_batch()
        return ones(4)


@hang("CC-HANG-004", (1,), "in data_loader()", common=True)
def data_loader(rank: int) -> None:
    """A worker of the data loader of one rank is stuck."""
    data: Any = StuckData() if rank == 1 else [ones(4)] * 8
    for _ in torch.utils.data.DataLoader(data, num_workers=1, multiprocessing_context="fork"):
        reduce()


@hang("CC-HANG-004", (1,), "in load_batch()")
def loader_in_rank(rank: int) -> None:
    """The same without workers."""
    data: Any = StuckData() if rank == 1 else [ones(4)] * 8
    for _ in torch.utils.data.DataLoader(data):
        reduce()


@hang("CC-HANG-004", (1,), "hangs_at_import.py:2: time.sleep(1e5)")
def slow_import(rank: int) -> None:
    """A module that hangs when it is imported."""
    if rank == 1:
        folder = shared("modules")
        folder.mkdir()
        (folder / "hangs_at_import.py").write_text("import time\ntime.sleep(1e5)\n")
        sys.path.insert(0, str(folder))
        importlib.import_module("hangs_at_import")
    reduce()


@hang("CC-HANG-004", (1,), "C code holds the GIL at", "in gil()", common=True)
def gil(rank: int) -> None:
    """C code that does not release the GIL."""
    if rank == 1:
        ctypes.PyDLL(None).sleep(100_000)
    reduce()


@hang("CC-HANG-004", (1,), "in debugger(), at a breakpoint")
def debugger(rank: int) -> None:
    """A breakpoint that was forgotten, with a terminal."""
    if rank == 1:
        import pdb

        pdb.Pdb(stdin=os.fdopen(os.pipe()[0]), stdout=sys.stdout, nosigint=True).set_trace()
    reduce()


@hang("CC-HANG-001", (1,), "rank 1 (gpu01) is stopped by a signal", common=True)
def stopped(rank: int) -> None:
    """SIGSTOP."""
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
    reduce()


@hang("CC-HANG-001", (1, 2), "ranks 1-2 (gpu01) are stopped by a signal")
def two_stopped(rank: int) -> None:
    """SIGSTOP of two ranks."""
    if rank:
        os.kill(os.getpid(), signal.SIGSTOP)
    reduce()


@hang(
    "CC-HANG-004", (1, 2), "ranks 1-2 (gpu01) have not entered", "they are at", "1 rank has waited for them"
)
def two_missing(rank: int) -> None:
    """Two ranks are elsewhere."""
    if rank:
        load_batch()
    reduce()


@hang("CC-HANG-004", (1,), "in thread_died(), and a thread has ended with ValueError: bad sample")
def thread_died(rank: int) -> None:
    """The thread that fills a queue has died of an exception."""
    batches: queue.Queue[int] = queue.Queue()

    def fill() -> None:
        raise ValueError("bad sample")

    if rank == 1:
        threading.Thread(target=fill, daemon=True).start()
        batches.get()
    reduce()


@hang("CC-HANG-004", (1,), "in polls_for_file()")
def polls_for_file(rank: int) -> None:
    """It looks again and again for a file that never comes."""
    while rank == 1 and not shared("never").exists():
        time.sleep(0.2)
    reduce()


@hang("CC-HANG-004", (1,), "in event_loop()")
def event_loop(rank: int) -> None:
    """A coroutine that waits for nothing."""
    import asyncio

    async def wait() -> None:
        await asyncio.get_running_loop().create_future()

    if rank == 1:
        asyncio.run(wait())
    reduce()


@hang("CC-HANG-004", (1,), "in load_batch()")
def future(rank: int) -> None:
    """The result of a thread of a pool, which is at the line that counts."""
    if rank == 1:
        ThreadPoolExecutor(1).submit(load_batch).result()
    reduce()


@hang("CC-HANG-004", (1,), "in process_queue()")
def process_queue(rank: int) -> None:
    """A queue of another process."""
    import multiprocessing

    if rank == 1:
        multiprocessing.get_context("fork").Queue().get()
    reduce()


@hang("CC-HANG-004", (1,), "in selects(): select.select(")
def selects(rank: int) -> None:
    """A call of the system."""
    if rank == 1:
        select.select([os.pipe()[0]], [], [])
    reduce()


# collectives that do not match


@hang(
    "CC-HANG-005",
    (1,),
    "rank 1 (gpu01): barrier at",
    "ranks 0,2 (gpu01): all_gather",
    "in swallows()",
    common=True,
)
def swallows(rank: int) -> None:
    """An exception is swallowed, and with it a collective."""
    try:
        if rank == 1:
            raise ValueError("bad batch")
        dist.all_gather([ones() for _ in range(3)], ones())
    except ValueError:
        pass
    dist.barrier()


@hang("CC-HANG-005", (0,), "rank 0 (gpu01): barrier at", "in one_branch()")
def one_branch(rank: int) -> None:
    """A barrier in a branch of rank 0."""
    if rank == 0:
        dist.barrier()
    reduce()


@hang(
    "CC-HANG-005",
    (1, 2),
    "rank 1 (gpu01): barrier",
    "rank 2 (gpu01): broadcast",
    "rank 0 (gpu01): all_reduce",
    common=True,
)
def all_different(rank: int) -> None:
    """Each rank is in another one."""
    if rank == 0:
        dist.all_reduce(ones(100_000))
    elif rank == 1:
        dist.barrier()
    else:
        dist.broadcast(ones(100_000), src=1)


@hang("CC-HANG-005", (0, 1, 2), "src", common=True)
def wrong_src(rank: int) -> None:
    """The ranks name different sources of a broadcast."""
    dist.broadcast(ones(1_000_000), src=(rank + 1) % 3)


@hang("CC-HANG-005", (1,), "in uneven_batches()", "all_reduce", compiles=True)
def uneven_batches(rank: int) -> None:
    """DistributedDataParallel with one batch less on a rank, which goes on to the last barrier."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    for _ in range(3 - (rank == 1)):
        model(ones(4)).sum().backward()
    dist.barrier()


@hang("CC-HANG-005", (1,), "in no_sync()", compiles=True)
def no_sync(rank: int) -> None:
    """Gradients are accumulated over more steps on one rank."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    if rank == 1:
        with model.no_sync():
            model(ones(4)).sum().backward()
    else:
        model(ones(4)).sum().backward()
    dist.barrier()


@hang("CC-HANG-004", (1,), "in hook()", compiles=True)
def backward_hook(rank: int) -> None:
    """A hook in the backward pass of one rank."""
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))

    def hook(gradient: Any) -> Any:
        time.sleep(FOREVER)
        return gradient

    output = model(ones(4))
    if rank == 1:
        output.register_hook(hook)
    output.sum().backward()


@hang("CC-HANG-004", (1,), "in wraps_model(", compiles=True)
def wraps_model(rank: int) -> None:
    """One rank does not wrap its model."""
    if rank == 1:
        load_batch()
    torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    dist.barrier()


@hang("CC-HANG-004", (1,), "in sharded_uneven()", compiles=True)
def sharded_uneven(rank: int) -> None:
    """FSDP2 with a batch less on one rank, which then loads."""
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(12, 12), torch.nn.Linear(12, 12))
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (3,))
    for layer in model:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    for _ in range(3 - (rank == 1)):
        model(torch.ones(2, 12)).sum().backward()
    if rank == 1:
        time.sleep(FOREVER)


@hang("CC-HANG-004", (1,), "all_reduce #2", "in async_never_waited()")
def async_never_waited(rank: int) -> None:
    """Work that others began and no rank waits for; then a barrier."""
    if rank == 1:
        time.sleep(FOREVER)
    dist.all_reduce(ones(), async_op=True)
    dist.barrier()


@hang("CC-HANG-004", (0,), "in async_and_sleeps()", "time.sleep")
def async_and_sleeps(rank: int) -> None:
    """A rank has begun an operation that another one has not, but is itself what all wait for."""
    if rank == 0:
        mine = dist.all_reduce(ones(), async_op=True, group=dist.new_group([0, 1]))
        time.sleep(FOREVER)
        mine.wait()
    else:
        dist.new_group([0, 1])
    dist.barrier()


# other ways to communicate


@hang("CC-HANG-004", (1,), "in load_batch()")
def gathers_objects(rank: int) -> None:
    """A collective of objects."""
    if rank == 1:
        load_batch()
    dist.all_gather_object([None] * 3, {"rank": rank})


@hang("CC-HANG-004", (0,), "in load_batch()")
def broadcasts_objects(rank: int) -> None:
    """The source of objects does not send."""
    if rank == 0:
        load_batch()
    dist.broadcast_object_list([None], src=0)


@hang("CC-HANG-004", (0,), "in load_batch()")
def scatters_objects(rank: int) -> None:
    """The source of objects does not scatter."""
    if rank == 0:
        load_batch()
    dist.scatter_object_list([None], [1, 2, 3] if rank == 0 else None, src=0)


@hang("CC-HANG-004", (1,), "in load_batch()", "barrier")
def device_barrier(rank: int) -> None:
    """A barrier with a device."""
    if rank == 1:
        load_batch()
    dist.barrier(device_ids=None)


@hang("CC-HANG-004", (1,), "monitored_barrier()", "in load_batch()")
def watched_barrier(rank: int) -> None:
    """monitored_barrier, which torch does not record."""
    if rank == 1:
        load_batch()
    dist.monitored_barrier(timeout=timedelta(seconds=FOREVER))


@hang("CC-HANG-004", (0,), "rank 0 (gpu01) has not entered barrier #2", "in load_batch()", common=True)
def no_send(rank: int) -> None:
    """A recv without a send, and a third rank in a barrier: the one that receives is not accused."""
    if rank == 0:
        load_batch()
    if rank == 1:
        dist.recv(ones(), src=0)
    dist.barrier()


@hang("CC-HANG-005", (0, 1), "rank 0 in recv", "from rank 1", "rank 1 in recv", "circle", common=True)
def both_receive(rank: int) -> None:
    """Two ranks receive from each other, and the third waits in a barrier."""
    if rank < 2:
        dist.recv(ones(), src=1 - rank)
    dist.barrier()


@hang("CC-HANG-004", (1,), "in load_batch()")
def no_receive(rank: int) -> None:
    """A send that no rank takes."""
    if rank == 1:
        load_batch()
    if rank == 0:
        dist.send(ones(10_000_000), dst=1)
    dist.barrier()


@hang("CC-HANG-007", (1,), "in load_batch()", "ranks 0,2 are at")
def batch_of_pairs(rank: int) -> None:
    """batch_isend_irecv in a ring, without one rank."""
    if rank == 1:
        load_batch()
    operations = [
        dist.P2POp(dist.isend, ones(1_000_000), (rank + 1) % 3),
        dist.P2POp(dist.irecv, ones(1_000_000), (rank + 2) % 3),
    ]
    for work in dist.batch_isend_irecv(operations):
        work.wait()


@hang("CC-HANG-004", (2,), "the send for recv of rank", "in load_batch()", ranks=4, common=True)
def pipeline(rank: int) -> None:
    """Stages receive from the one before; the third is stuck, and the others wait for gradients."""
    if rank > 0:
        dist.recv(ones(), src=rank - 1)
    if rank == 2:
        load_batch()
    if rank < 3:
        dist.send(ones(), dst=rank + 1)
        dist.recv(ones(), src=rank + 1)
    dist.send(ones(), dst=rank - 1)


@hang("CC-HANG-004", (1,), "in load_batch()")
def object_pairs(rank: int) -> None:
    """An object that is not sent."""
    if rank == 1:
        load_batch()
    if rank == 0:
        dist.recv_object_list([None], src=1)
    dist.barrier()


# process groups


def make_mesh() -> tuple[Any, Any]:
    """Make the groups of a mesh of 2 x 2 ranks."""
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("pp", "tp"))
    return mesh.get_group("pp"), mesh.get_group("tp")


def wait_for_last(rank: int, within: Any, across: Any) -> None:
    """Wait for rank 3 in both of its groups: first rank 2, then rank 1, for the longest wait is the answer."""
    if rank == 3:
        load_batch()
    work = dist.all_reduce(ones(), group=within, async_op=True)
    store = dist.distributed_c10d._get_default_store()
    if rank == 2:
        store.set("rank 2 waits", "")
    if rank == 1:
        store.wait(["rank 2 waits"])
    work.wait()
    reduce(across)


@hang(
    "CC-HANG-004", (3,), "rank 3 (gpu01) has not entered all_reduce #1 of group mesh_tp", ranks=4, common=True
)
def mesh_first_use(rank: int) -> None:
    """A group of a mesh is used for the first time, and its other rank never comes."""
    across, within = make_mesh()
    wait_for_last(rank, within, across)


@hang("CC-HANG-004", (3,), "of group mesh_tp", "ranks 2-3", ranks=4)
def mesh_used(rank: int) -> None:
    """The same after the groups were used."""
    across, within = make_mesh()
    for _ in range(3):
        reduce(within)
        reduce(across)
    wait_for_last(rank, within, across)


def go_round(rank: int, uses: int) -> None:
    """Use the groups of a mesh in an order that makes a circle of four ranks."""
    across, within = make_mesh()
    for _ in range(uses):
        reduce(within)
        reduce(across)
    for group in (within, across) if rank in (0, 3) else (across, within):
        reduce(group)


@hang(
    "CC-HANG-005",
    (0, 1, 2, 3),
    "circle",
    "rank 0 in",
    "rank 3 in",
    "ranks 0-1",
    "ranks 2-3",
    ranks=4,
    common=True,
)
def mesh_circle(rank: int) -> None:
    """Four ranks in a circle over groups that were used."""
    go_round(rank, 5)


@hang("CC-HANG-005", (0, 1, 2, 3), "circle", ranks=4)
def mesh_circle_first_use(rank: int) -> None:
    """The same over groups that are new."""
    go_round(rank, 0)


@hang("CC-HANG-005", (0, 1, 2), "circle", "rank 0 in", "rank 1 in", "rank 2 in", common=True)
def three_groups(rank: int) -> None:
    """Three groups of two ranks each, for the first time, in a circle."""
    groups = [dist.new_group([one, (one + 1) % 3]) for one in range(3)]
    reduce(groups[rank])
    reduce(groups[(rank + 2) % 3])


@hang("CC-HANG-005", (0, 1), "circle", "group dp", "group tp")
def group_order(rank: int) -> None:
    """Two groups of the same ranks in different order."""
    both = [dist.new_group([0, 1], group_desc=name) for name in ("dp", "tp")]
    if rank < 2:
        reduce(both[rank])
        reduce(both[1 - rank])
    dist.barrier()


@hang("CC-HANG-004", (1,), "in load_batch()", ranks=4)
def one_group(rank: int) -> None:
    """Two ranks have a group of their own, the others wait for both."""
    pair = dist.new_group([0, 1])
    if rank == 1:
        load_batch()
    if rank == 0:
        reduce(pair)
    dist.barrier()


@hang("CC-HANG-004", (0,), "in load_batch()", ranks=4)
def nested_groups(rank: int) -> None:
    """Groups within groups: the innermost is where it hangs."""
    groups = [dist.new_group(list(range(size))) for size in (2, 3, 4)]
    if rank == 0:
        load_batch()
    for size, group in zip((2, 3, 4), groups, strict=True):
        if rank < size:
            reduce(group)


@hang("CC-HANG-004", (1,), "new_group()", "in load_batch()")
def new_group(rank: int) -> None:
    """A rank does not make the group that the others make."""
    if rank == 1:
        load_batch()
    dist.new_group([0, 1, 2])
    dist.barrier()


@hang("CC-HANG-004", (2,), "in load_batch()", ranks=4)
def mesh_pairs(rank: int) -> None:
    """Stages of a pipeline with tensor parallelism: the peer of a stuck rank waits in its group, the next stage too."""
    _, within = make_mesh()
    reduce(within)
    if rank == 2:
        load_batch()
    if rank == 3:
        reduce(within)
    if rank < 2:
        dist.recv(ones(), src=rank + 2)


# before, beside and after the training


@hang("CC-HANG-004", (1,), "init_process_group()", "in load_batch()", joins=False, common=True)
def before_group(rank: int) -> None:
    """A rank hangs before it joins."""
    if rank == 1:
        load_batch()
    join(rank, 3)


@hang("CC-HANG-010", (), "ranks 0-2 at", "store.get(", common=True)
def all_in_store(_: int) -> None:
    """A key that no rank sets."""
    store = dist.distributed_c10d._get_default_store()
    key = "ready"
    store.get(key)


@hang("CC-HANG-004", (1,), "store.get(")
def one_in_store(rank: int) -> None:
    """A key of one rank that no rank sets."""
    store = dist.distributed_c10d._get_default_store()
    key = f"key of rank {rank}"
    if rank == 1:
        store.get(key)
    reduce()


@hang(
    "CC-HANG-003",
    (1,),
    "rank 1 (gpu01) has left its script and waits for the thread uploader",
    "in load_batch()",
    common=True,
)
def thread_at_exit(rank: int) -> None:
    """A thread that is not a daemon, after the other ranks have ended."""
    if rank == 1:
        threading.Thread(target=load_batch, name="uploader").start()


@hang("CC-HANG-003", (1,), "waits for the process writer")
def process_at_exit(rank: int) -> None:
    """A process that is not a daemon."""
    import multiprocessing

    if rank == 1:
        multiprocessing.get_context("fork").Process(target=load_batch, name="writer").start()


@hang("CC-HANG-003", (1,), "has failed with RuntimeError: no more batches")
def failed(rank: int) -> None:
    """A traceback, and a thread that is not a daemon."""
    if rank == 1:
        threading.Thread(target=load_batch).start()
        raise RuntimeError("no more batches")
    reduce()


@hang("CC-HANG-004", (1,), "in load_batch()", "in reduce()", common=True)
def other_thread(rank: int) -> None:
    """The collective is in a thread for which the main thread waits."""

    def collect() -> None:
        if rank == 1:
            load_batch()
        reduce()

    thread = threading.Thread(target=collect)
    thread.start()
    thread.join()


@hang("CC-HANG-004", (1,), "in checkpoint()", "below it torch/distributed/checkpoint/filesystem.py")
def checkpoint(rank: int) -> None:
    """A checkpoint whose write does not end on one rank: all are at one line of the script."""
    checkpoints = importlib.import_module("torch.distributed.checkpoint")
    if rank == 1:
        held = threading.Lock()
        held.acquire()
        vars(os)["fsync"] = held.acquire  # of a file: it blocks as a disk may
    path = shared("checkpoint")
    checkpoints.save({"a": ones()}, storage_writer=checkpoints.FileSystemWriter(path))


@hang("CC-HANG-004", (1,), "in load_batch()")
def remote_calls(rank: int) -> None:
    """A rank hangs while the others wait for all in a collective of a second thread pool."""
    with ThreadPoolExecutor(1) as threads:
        threads.submit(load_batch if rank == 1 else reduce).result()


# runs that do not hang


@hang("CC-HANG-009", (), "make progress", common=True)
def trains(_: int) -> None:
    """Steps."""
    while True:
        time.sleep(0.2)
        reduce()


@hang("CC-HANG-010", (), "use a processor")
def computes(_: int) -> None:
    """No collective for a long time, as while the first step is compiled."""
    matrix = torch.ones(100, 100)
    while True:
        matrix = torch.mm(matrix, matrix) / 100


def shared(name: str) -> Path:
    """Name a path that is the same for all ranks of a case."""
    return Path(os.environ["HANG_FOLDER"], name)


def join(rank: int, size: int) -> None:
    """Form the process group of a case."""
    if "HANG_PORT" not in os.environ:
        dist.init_process_group("gloo")
        return
    listener = {"master_listen_fd": int(os.environ["HANG_LISTENER"])} if rank == 0 else {}
    limit = timedelta(seconds=FOREVER)
    store = dist.TCPStore(
        "127.0.0.1", int(os.environ["HANG_PORT"]), size, rank == 0, limit, wait_for_workers=False, **listener
    )
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=limit)


def run_rank(case: Hang, rank: int) -> None:
    """Run one rank of a case: all do one collective before it hangs."""
    if case.joins:
        join(rank, case.ranks)
        reduce()
    case.run(rank)


def load_torch() -> None:
    """Load what the cases use."""
    global torch, dist  # noqa: PLW0603 - a test reads the table without torch
    torch = importlib.import_module("torch")
    for name in ("distributed.device_mesh", "distributed.fsdp", "distributed.checkpoint", "utils.data"):
        importlib.import_module(f"torch.{name}")
    dist = torch.distributed
    torch.set_num_threads(1)


def fork_rank(folder: Path, case: Hang, rank: int, listener: socket.socket) -> int:
    """Start one rank as the fork of a prepared worker is started."""
    pid = os.fork()
    if pid:
        return pid
    from clusterctl.node.diagnose import rank as prepared

    place = folder / case.name
    log = os.open(place / f"{rank}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for number in (1, 2):
        os.dup2(log, number)
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(case.ranks),
        CLUSTERCTL_DIAGNOSE=str(place / "diagnose" / "1"),
        HANG_FOLDER=str(place),
        HANG_PORT=str(listener.getsockname()[1]),
        HANG_LISTENER=str(listener.fileno()),
        GLOO_SOCKET_IFNAME="lo",
    )
    prepared.install(os.environ)
    return 0


def main(folder: Path, names: list[str]) -> None:
    """Start the ranks of all cases; all end with the test, also if that is killed: then stdin ends."""
    load_torch()
    if any(CASES[name].compiles for name in names):
        importlib.import_module("torch._dynamo")  # DistributedDataParallel needs it, and it takes long
    for name in names:
        case = CASES[name]
        (folder / name / "diagnose" / "1").mkdir(parents=True)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            for rank in range(case.ranks):
                pid = fork_rank(folder, case, rank, listener)
                if pid == 0:
                    return run_rank(case, rank)
                print(name, rank, pid, flush=True)
    print("started", flush=True)
    threading.Thread(target=end_with_stdin, daemon=True).start()
    while True:
        os.wait()


def end_with_stdin() -> None:
    """End all ranks, and what they have started, at the end of stdin."""
    sys.stdin.read()
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    if "HANG" in os.environ:
        os.environ.setdefault("HANG_FOLDER", tempfile.gettempdir())
        load_torch()
        run_rank(CASES[os.environ["HANG"]], int(os.environ["RANK"]))
    else:
        main(Path(sys.argv[1]), sys.argv[2:])
