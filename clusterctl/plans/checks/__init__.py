"""All checks: one function each, in the module of its topic.

`framework` is what a check gets and returns, `registry` lists the topics and runs all checks. Not here: what nodes
are asked (`node/probe`). Start with `framework`.
"""
