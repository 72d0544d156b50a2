"""Files from outside of the cluster: a hub or a web server.

`http` makes the requests, `hubs` lists files, `placement` decides where they go, `downloader` downloads them, and other
nodes read them meanwhile. Not here: the verb (`node/verbs/staging/download`). Start with `downloader`.
"""
