"""What client and nodes send each other, and what a node keeps; one module per conversation.

Start with `verbs`, the requests and answers of each verb, and `evidence`, what a node knows of a run's ranks and load;
`agent` is what goes on over the session of `start`, `local` what the processes of one node send
each other, `files` are the files of a run, `network` is what nodes send each other, `facts` is what a
node reports of itself: these are types alone, and not sent to nodes. `gang` reads and writes what the agents of a run
send each other.
"""
