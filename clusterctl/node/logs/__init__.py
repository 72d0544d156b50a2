"""Log files of a run: read, index, shorten.

`reader` and `lines` read, `recorder` and `time_index` note when lines were written, `truncation` shortens long files,
`activity` finds each rank's last line. Not here: the verbs that use it (`node/verbs/follow`). Start with `reader`.
"""
