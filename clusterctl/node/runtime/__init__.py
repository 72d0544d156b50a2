"""Below everything else on a node: event loop, frames, processes, connections, ports.

Imports nothing of the other folders. `stream` has the frames, `event_loop` the agent's loop, `connections` what nodes
prove to each other. Start with `event_loop`.
"""
