"""Everything that is printed: text, tables, JSON.

One module per kind of output; `terminal` has colour and verbosity, `text` makes foreign text safe to print, `run` shows
runs, `documents` holds what `--json` writes, `progress` the running command. Not here: questions to nodes and
decisions. Start with `terminal`.
"""
