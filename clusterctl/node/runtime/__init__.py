"""Below everything else on a node: event loop, frames, processes, children, connections, ports.

Imports nothing of the other folders. `stream` has the frames, `event_loop` the agent's loop, `connections` what nodes
prove to each other, `children` starts programs, `reports` has what these
report, `ports` finds and holds free ports. Start with `event_loop`.
"""
