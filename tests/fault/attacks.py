"""Peers that hold no token, or hold it and break the protocol (hostile.cpp, hostile_writer.cpp)."""

import checks
from peers import stream_options


async def with_a_healthy_pair(stage, plane, role):
    """A writer and a reader in the middle of a stream; meanwhile the role does what it does."""
    writer = await stage.start("writer", "writer", rendezvous_readers=1, **stream_options("automatic"))
    await stage.until(lambda: writer.over or writer.said("ready"))
    reader = await stage.start("second reader", "reader", hold=1, **stream_options(plane))
    await stage.until(lambda: reader.over or reader.said("opened"))
    writer.go()
    await stage.until(lambda: reader.over or reader.said("holds"))
    attacker = await stage.start(role, role)
    await stage.until(lambda: attacker.over)
    reader.go()
    await stage.until(lambda: writer.over and reader.over)
    wrong = [f"{peer.name} exited with {peer.code}" for peer in stage.peers if peer.code != 0]
    if not writer.said("closed"):
        wrong.append("the writer did not end well")
    if checks.ending(reader) != "end_of_stream" or checks.account_of(reader, False):
        wrong.append(f"the healthy reader: {checks.ending(reader)}, {checks.account_of(reader, False)}")
    return attacker, wrong


async def wrong_token(stage, plane):
    attacker, wrong = await with_a_healthy_pair(stage, plane, "intruder")
    tries = attacker.said("intruder ")
    wrong += [line for line in tries if line.split()[1] != "authentication"]
    if len(tries) != 11:
        wrong.append(f"{len(tries)} of 11 handshakes")
    return f"{len(tries)} handshakes (5 purposes, Unix and TCP), all refused; writer and reader as if nothing was", wrong


# What does not end the connection, because it is legal (the first step was announced and may be released) or not seen
# until the next record is sent.
HARMLESS = ("joined poke", "not-joined join", "joined release defaults", "ring more read than sent")


async def hostile_reader(stage, plane):
    attacker, wrong = await with_a_healthy_pair(stage, plane, "hostile-reader")
    closed, still_open = attacker.said("attack closed "), attacker.said("attack open ")
    wrong += [f"not cut off: {line}" for line in still_open if not any(word in line for word in HARMLESS)]
    if not attacker.said("attacks over"):
        wrong.append("not every attack was made")
    return f"{len(closed)} attacks cut off, {len(still_open)} harmless; writer and reader as if nothing was", wrong


async def hostile_writer(stage, plane):
    attacker = await stage.start("hostile writer", "hostile-writer", data_plane=plane)
    await stage.until(lambda: attacker.over)
    wrong = [] if attacker.code == 0 else [f"exited with {attacker.code}"]
    wrong += attacker.said("accepted")
    return f"{len(attacker.said('attack '))} attacks on a reader, each an error in time", wrong


ALL = (wrong_token, hostile_reader, hostile_writer)
