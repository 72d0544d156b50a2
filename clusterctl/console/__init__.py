"""Everything that is printed, as text, tables or JSON; one module per kind of output.

`terminal` has colour and verbosity, `text` makes texts safe to print, `progress` shows what a command is
doing, `errors` how it failed. Nothing here asks a node or decides anything. Start with `terminal`, then
`verdict`.
"""
