"""Verbs about the machine: use (`top`), runs (`pulse`), Pythons (`pythons`), ports (`connect`), nothing (`idle`).

Start with `pythons`: it is one question and one answer. `connect` is for ranks that wait at a breakpoint, too.
"""
