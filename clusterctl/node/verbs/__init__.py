"""One module per verb that a client can ask for; `run(request, stream)` is called by `node/boot`.

A verb is sent with the modules that it imports: an import here makes a bundle larger.
"""
