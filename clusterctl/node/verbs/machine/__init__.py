"""Verbs about the machine: use (`top`), runs (`pulse`, `slurm_pulse`), Pythons, ports (`connect`).

Start with `pythons`: it is one question and one answer. `connect` is for ranks that wait at a breakpoint, too; `idle`
does nothing.
"""
