"""Log files of a run: read, index, shorten.

`reader` and `lines` read, `recorder` shortens long files and with `time_index` notes when lines were written,
`truncation` is what is gone of a file, `activity` finds each rank's last line. Not here: the verbs that use it
(`node/verbs/follow`). Start with `reader`.
"""
