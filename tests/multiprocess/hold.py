"""A reader that keeps views: hold.py STREAM COUNT. Says "holding" and then waits to be killed or told to go on."""

import sys

import penstock

with penstock.open(sys.argv[1]) as stream:
    views = []
    for _ in range(int(sys.argv[2])):
        with stream.step() as step:
            view = step["T"].view()  # a list when several ranks wrote it
            views.append(view if isinstance(view, list) else [view])
    print("holding", *(view[0][0] for view in views), flush=True)
    sys.stdin.readline()
    # The writer may be dead by now: what is mapped is still there.
    print("values", *(sum(part.sum() for part in view) for view in views), flush=True)
    views.clear()
