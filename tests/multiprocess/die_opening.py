"""A reader that is killed while it opens: die_opening.py STREAM FRACTION, of the time that an open takes."""

import os
import signal
import sys
import threading
import time

import penstock

name, fraction = sys.argv[1], float(sys.argv[2])
start = time.monotonic()
penstock.open(name).close()
lasts = time.monotonic() - start


def die():
    end = time.monotonic() + lasts * fraction
    while time.monotonic() < end:
        pass
    os.kill(os.getpid(), signal.SIGKILL)


threading.Thread(target=die).start()
stream = penstock.open(name)
threading.Event().wait()
