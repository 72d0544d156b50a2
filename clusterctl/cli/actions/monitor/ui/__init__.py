"""The page of `ui` on 127.0.0.1: its server, what it shows, and where that comes from.

Start with server.py, which is HTTP and nothing else: who may ask for what. feed.py holds what open pages show;
source.py reads it from the nodes while a page is open; fragments.py makes HTML of it; page.js puts that into the page.
"""
