"""What nodes report about themselves, as values: `facts` is the whole, `records` its parts, `untrusted` how it
is read.
"""
