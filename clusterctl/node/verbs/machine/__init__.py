"""Verbs about the machine: `top` its use, `pythons` its interpreters, `connect` its ports and waiting ranks.

Start with `pythons`: it is one question and one answer.
"""
