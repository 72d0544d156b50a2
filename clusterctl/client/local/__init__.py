"""Files, programs and notifications on the launching machine.

`private_files` writes files that only the user may read, `hooks` keeps what is to be done when a run has ended;
`notify` posts messages and runs `on_end`; `programs` runs a program within limits, as that which lists an Ansible
inventory. Not here: the text of messages (`plans/notify`). Start with `private_files`.
"""
