"""Below everything else on a node: event loop, frames, processes, sockets, exit codes.

Imports nothing of the other folders. `stream` has the frames, `event_loop` the agent's loop.
"""
