"""Peers that hold no token, or hold it and break the protocol (hostile.cpp, hostile_writer.cpp)."""

import asyncio

import checks
from peers import HANG_S, SLACK_S, number_in, stream_options
from strangers import Flood, have_descriptors, listening


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
    if checks.ending(reader) != "end_of_stream" or checks.account_of(reader, {}):
        wrong.append(f"the healthy reader: {checks.ending(reader)}, {checks.account_of(reader, {})}")
    return attacker, wrong


async def wrong_token(stage, plane):
    attacker, wrong = await with_a_healthy_pair(stage, plane, "intruder")
    tries = attacker.said("intruder ")
    wrong += [line for line in tries if line.split()[1] != "authentication"]
    if len(tries) != 11:
        wrong.append(f"{len(tries)} of 11 handshakes")
    return (
        f"{len(tries)} handshakes (5 purposes, Unix and TCP), all refused; writer and reader as if nothing was",
        wrong,
    )


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


# What does a reader no harm: a drop that is legal to tell, a counter that it looks at with its next record.
UNSEEN = ("accepted ring dropped", "accepted ring more read than sent")


async def hostile_writer(stage, plane):
    attacker = await stage.start("hostile writer", "hostile-writer", data_plane=plane)
    await stage.until(lambda: attacker.over)
    wrong = [] if attacker.code == 0 else [f"exited with {attacker.code}"]
    wrong += [line for line in attacker.said("accepted") if not any(word in line for word in UNSEEN)]
    for line in attacker.said("attack "):
        if number_in(line, "ms") > 1000 * SLACK_S:
            wrong.append(f"too late: {line}")
    if not attacker.said("attacks over"):
        wrong.append("not every attack was made")
    return f"{len(attacker.said('attack '))} attacks on a reader, each an error in time", wrong


async def wrong_token_in_a_writer_cohort(stage, plane):
    """Rank 1 knows another token than rank 0: nobody opens, and each says why."""
    ranks = await stage.start_ranks("writer", "writer", 2, {1: {"garble": 1}}, **stream_options(plane))
    reader = await stage.start("reader", "reader", **stream_options(plane))
    await stage.until(lambda: reader.over and all(rank.over for rank in ranks))
    ends = [checks.ending(peer) for peer in (*ranks, reader)]
    wrong = [] if ends == ["timeout", "authentication", "timeout"] else [f"rank 0, rank 1 and the reader: {ends}"]
    if not any("rank 1" in line for line in ranks[0].said("open-failed")):
        wrong.append("rank 0 does not say that rank 1 was missing")
    return "rank 1: authentication; rank 0 waited for it by name; the reader found no stream", wrong


async def wrong_token_in_a_reader_cohort(stage, plane):
    """Rank 1 of a reader has a wrong token for the data (1) or for its own tree (2): writer and others go on."""
    seen, wrong = [], []
    for garble in (1, 2):
        writer = await stage.start(
            f"writer {garble}", "writer", stream=f"s{garble}", rendezvous_readers=1, **stream_options(plane)
        )
        await stage.until(lambda w=writer: w.over or w.said("ready"))
        ranks = await stage.start_ranks(
            "reader", "reader", 2, {1: {"garble": garble}}, stream=f"s{garble}", **stream_options(plane)
        )
        other = await stage.start("second reader", "reader", stream=f"s{garble}", **stream_options(plane))
        await stage.until(lambda o=other, r=ranks: all(p.over or p.said("opened") for p in (*r, o)))
        writer.go()
        await stage.until(lambda w=writer, o=other, r=ranks: all(p.over for p in (w, o, *r)))
        refusals = ranks[1].said("failed code=authentication") + ranks[1].said("open-failed code=authentication")
        seen.append(f"token {garble}: rank 1 met {len(refusals)} refusals, rank 0 {checks.ending(ranks[0])}")
        if not refusals or ranks[1].said("read"):
            wrong.append(f"rank 1 was let in with a wrong token {garble}")
    wrong += [f"{peer.name} exited with {peer.code}" for peer in stage.peers if peer.code != 0]
    for peer in stage.peers:
        if peer.name.startswith("writer") and not peer.said("closed"):
            wrong.append(f"{peer.name} did not end well")
        if peer.name == "second reader" and checks.ending(peer) != "end_of_stream":
            wrong.append(f"{peer.name}: {checks.ending(peer)}")
    return "; ".join(seen), wrong


async def strangers(stage, plane):
    """Hundreds and thousands of connections without a token, renewed without end: a reader joins and reads."""
    seen, wrong = [], []
    patient = {"open_timeout_ms": 6000, "step_timeout_ms": 6000}  # less than the ten seconds of a handshake
    options = stream_options(plane, **patient)
    for count in (300, 2000) if have_descriptors(3000) else (300,):
        name = f"s{count}"
        writer = await stage.start(f"writer {count}", "writer", stream=name, rendezvous_readers=1, **options)
        await stage.until(lambda w=writer: w.over or w.said("ready"))
        address = writer.said("ready ")[0].removeprefix("ready ")
        targets = [(kind, at) for kind, at in listening(writer.pid) if (kind == "tcp") == (plane == "tcp")]
        with Flood(targets, count) as flood:
            if not await asyncio.to_thread(flood.standing.wait, HANG_S):
                wrong.append(f"{count} connections could not be made")
            where = {"address": address} if plane == "tcp" else {"stream": name}
            reader = await stage.start(f"reader {count}", "reader", **where, **options)
            await stage.until(lambda r=reader: r.over or r.said("opened"))
            writer.go()
            await stage.until(lambda w=writer, r=reader: w.over and r.over)
        seen.append(f"{count} connections")
        if checks.ending(reader) != "end_of_stream" or checks.account_of(reader, {}):
            wrong.append(f"the reader among {count}: {checks.ending(reader)}, {checks.account_of(reader, {})}")
    wrong += [f"{peer.name} exited with {peer.code}" for peer in stage.peers if peer.code != 0]
    return " and ".join(seen) + " without a token, renewed all the time; a reader joined and read", wrong


ALL = (
    strangers,
    wrong_token,
    wrong_token_in_a_writer_cohort,
    wrong_token_in_a_reader_cohort,
    hostile_reader,
    hostile_writer,
)
