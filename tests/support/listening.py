"""A listener on loopback that answers as a test wants it to."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

from waiting import HANG


@contextmanager
def listener(answer: Callable[[socket.socket], None] | None, backlog: int = 16) -> Iterator[int]:
    """Listen on a port and do `answer` with each connection; without one, accept nothing."""
    with closing(socket.socket()) as listening:
        listening.bind(("127.0.0.1", 0))
        listening.listen(backlog)
        held: list[socket.socket] = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listening.accept()
                except OSError:
                    return
                held.append(connection)
                if answer is not None:
                    answer(connection)

        thread = threading.Thread(target=serve, daemon=True)
        if answer is not None:
            thread.start()
        yield int(listening.getsockname()[1])
        listening.shutdown(socket.SHUT_RDWR)
        for connection in held:
            connection.close()
        if answer is not None:
            thread.join(HANG)
