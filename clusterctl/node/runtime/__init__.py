"""Below everything on a node: event loop, frames over descriptors (`stream`), processes, sockets, exit codes."""
