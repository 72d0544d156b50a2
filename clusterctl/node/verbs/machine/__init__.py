"""Verbs about the machine alone: `top`, how busy it is, and `pythons`, which interpreters it has.

Start with `pythons`: it is one question and one answer.
"""
