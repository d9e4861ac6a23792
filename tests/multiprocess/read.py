"""A reader: read.py STREAM, where STREAM is a name or an address. The same wherever the writer is."""

import sys

import penstock


def say(*words):
    print(*words, flush=True)


total = 0.0
try:
    with penstock.open(sys.argv[1]) as stream:
        say("opened", stream.statistics.data_plane)
        for step in stream:
            array = step["T"][:]
            whole = all(array == array[0] + range(len(array))) and step.attributes["time"] == array[0] / 2
            total += array.sum()
            say("read", step.number, "whole" if whole else "TORN")
        say("end", stream.statistics.data_plane, stream.statistics.steps, total)
except penstock.WriterLost as error:
    say("lost", error)
except penstock.Error as error:
    say("error", type(error).__name__, error)
    sys.exit(1)
