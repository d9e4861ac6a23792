#!/usr/bin/env python3
"""Turns a folder that unsynced_preload watched into what a machine that lost its power could have left.

  roll_back.py ROOT JOURNAL [--survive SEED]

Without --survive everything that was not synced is lost: names are undone, files have the bytes of their last sync.
With it, what was not synced survives in part, as real file systems may have it: of the names a first part (in the order
in which they were made), of each file's bytes nothing, all, or a first part, the last write cut short or with zeros at
its end. Zeros are what a file system leaves that records a file's new size before its data; RocksDB refuses a MANIFEST
that ends so (docs/howto/serve.md says which file systems it is for), and its MANIFEST is only cut short. Prints a JSON
line; removes the journal. Called after the watched program was killed. The journal: unsynced_journal.hpp.
"""

import argparse
import json
import os
import random
import shutil
from pathlib import Path
from urllib.parse import unquote_to_bytes


class Change:
    """A line of the journal that changes bytes or names."""

    def __init__(self, line, fields):
        self.kind, self.op = line[0], int(fields[1])
        self.fields = fields


def decoded(name):
    return "" if name == "." else os.fsdecode(unquote_to_bytes(name))


def parent_of(name):
    return name.rpartition("/")[0]


class Journal:
    """What the journal says: changes of names, of bytes by inode, and up to which operation each is durable."""

    def __init__(self, folder):
        self.names, self.bytes = [], {}
        self.synced_files, self.synced_folders, self.synced_all = {}, {}, 0
        self.untracked, self.last, self.records = set(), 0, 0
        text = (folder / "journal").read_text() if (folder / "journal").exists() else ""
        for line in text.split("\n")[:-1]:  # what has no line end was being written
            self.records += 1
            self.add(line)

    def add(self, line):
        fields = line.split(" ")
        change = Change(line, fields)
        self.last = change.op
        if change.kind == "C":
            inode = int(fields[3])  # a number that an earlier file had, perhaps
            self.bytes[inode] = []
            self.synced_files[inode] = 0
        if change.kind == "S":
            inode = int(fields[3])
            self.synced_files[inode] = max(self.synced_files.get(inode, 0), int(fields[2]))
        elif change.kind == "D":
            name = decoded(fields[3])
            self.synced_folders[name] = max(self.synced_folders.get(name, 0), int(fields[2]))
        elif change.kind == "A":
            self.synced_all = max(self.synced_all, int(fields[2]))
        elif change.kind in "WT":
            self.bytes.setdefault(int(fields[2]), []).append(change)
        elif change.kind == "F":
            self.untracked.add(decoded(fields[2]))
        else:
            self.names.append(change)

    def lost_bytes(self, inode):
        durable = max(self.synced_files.get(inode, 0), self.synced_all)
        return [change for change in self.bytes[inode] if change.op > durable]

    def lost_names(self):
        def is_durable(change):
            name = decoded(change.fields[3 if change.kind == "R" else 2])
            return change.op <= max(self.synced_folders.get(parent_of(name), 0), self.synced_all)

        # An intent to create says something only when the program was killed right after it.
        return [c for c in self.names if not is_durable(c) and (c.kind != "c" or c.op == self.last)]


def undo_bytes(path, change, undo):
    """As it was before one write or truncation."""
    if change.kind == "W":
        offset, _, size, at, length = map(int, change.fields[3:8])
    else:
        offset, size, at, length = map(int, change.fields[3:7])
    with open(path, "r+b", buffering=0) as file:
        if length:
            undo.seek(at)
            file.seek(offset)
            file.write(undo.read(length))
        file.truncate(size)


def roll_back_file(path, lost, undo, chance):
    """Undoes the lost changes of one file's bytes, or, by chance, some of them. Returns how many."""
    survivors = 0
    torn = False
    if chance:
        fate = chance.randrange(10)
        if fate >= 8:
            survivors = len(lost)
        elif fate >= 4:
            survivors = chance.randrange(len(lost) + 1)
            torn = survivors > 0
    for change in reversed(lost[survivors:]):
        undo_bytes(path, change, undo)
    if torn and lost[survivors - 1].kind == "W":
        tear(path, lost[survivors - 1], chance)
    return len(lost) - survivors


def tear(path, write, chance):
    """Of a write that made the file longer, only a first part: cut short, or zeros after it."""
    offset, length, size_before = map(int, write.fields[3:6])
    size = os.path.getsize(path)
    end = min(offset + length, size)
    if end != size or end <= size_before:
        return
    kept = chance.randrange(max(offset, size_before), end)
    os.truncate(path, kept)
    if chance.random() < 0.5 and not Path(path).name.startswith("MANIFEST-"):
        os.truncate(path, size)


def inode_of(path):
    try:
        return os.lstat(path).st_ino
    except FileNotFoundError:
        return 0


def undo_name(root, kept, change):
    """As it was before one change of names. Looks first: the program may have been killed before it made the change."""
    fields = change.fields
    path = root / decoded(fields[2])
    if change.kind == "c":
        path.unlink(missing_ok=True)
    elif change.kind in "CL":
        if inode_of(path) == int(fields[3]):
            path.unlink()
    elif change.kind == "U":
        if not inode_of(path):
            os.link(kept / fields[3], path)
    elif change.kind == "M":
        shutil.rmtree(path, ignore_errors=True)
    elif change.kind == "X":
        path.mkdir(exist_ok=True)
    elif change.kind == "R":
        target, inode, victim = root / decoded(fields[3]), int(fields[4]), int(fields[5])
        if inode == 0 or inode_of(target) != inode or inode_of(path) not in (0, inode):
            return
        target.rename(path)
        if victim:
            os.link(kept / fields[5], target)


def roll_back(root, journal_folder, seed=None):
    """Rolls back and removes the journal. Returns counts of what was lost."""
    root, folder = Path(root), Path(journal_folder)
    journal = Journal(folder)
    kept = folder / "kept"
    chance = random.Random(seed) if seed is not None else None
    places = {os.lstat(path).st_ino: path for path in kept.iterdir()} if kept.exists() else {}
    for parent, _, names in os.walk(root):
        places.update((inode_of(Path(parent, name)), Path(parent, name)) for name in names)
    lost_changes = 0
    if journal.records:
        with open(folder / "undo", "rb") as undo:
            for inode in sorted(journal.bytes):
                lost = journal.lost_bytes(inode)
                if lost and inode in places:
                    lost_changes += roll_back_file(places[inode], lost, undo, chance)
    lost_names = journal.lost_names()
    cut = 0
    if chance and lost_names and chance.random() < 0.5:
        cut = chance.choice(lost_names).op
    undone = [change for change in lost_names if change.op > cut]
    for change in reversed(undone):
        undo_name(root, kept, change)
    shutil.rmtree(folder, ignore_errors=True)
    return {
        "records": journal.records,
        "lost_writes": lost_changes,
        "lost_names": len(undone),
        "untracked": sorted(journal.untracked),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("root")
    parser.add_argument("journal")
    parser.add_argument("--survive", type=int, metavar="SEED")
    arguments = parser.parse_args()
    print(json.dumps(roll_back(arguments.root, arguments.journal, arguments.survive)))


if __name__ == "__main__":
    main()
