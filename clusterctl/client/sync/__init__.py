"""The job's code: find it (`scan`), hash it (`contents`), send it to one node (`upload`) or from node to node
(`distribute`).

What is ignored is decided in `plans/sync`; the other side is `node/sync`.
"""
