"""All checks: a function each, with code, severity, reason and fix, in the module of its topic.

`framework` is what a check gets and gives, `registry` finds and runs all of them. What is asked of nodes is
in `node/probe`. To add a check, write a function here and a case in `tests/plans/cases`.
"""
