"""What must hold after a fault: nobody crashes, nobody waits beyond a deadline, nothing is lost in silence."""

from peers import SLACK_S, STEPS, deadlines, number_in

# Lines that say how long a call took: which deadline it had.
DEADLINES = {"timeout": "step", "failed": "step", "open-failed": "open", "close-failed": "close", "ended": "step"}


def numbers(peer, word):
    return [int(line.split()[1]) for line in peer.said(f"{word} ")]


def ending(reader):
    for line in reader.lines:
        if line.startswith(("ended", "open-failed")):
            return line.split()[1].removeprefix("code=")
    return "nothing"


def judge_programs(play, wrong):
    """Exit codes and deadlines of all, the one at fault too where it lived on."""
    case = play.case
    for peer in play.stage.peers:
        died = peer.faulted and case.action in ("kill", "stop")
        if not died and peer.code != 0:
            wrong.append(f"{peer.name} exited with {peer.code}")
        for line in peer.lines:
            word = line.split(" ")[0]
            ms = number_in(line, "ms")
            # Who was stopped was not told the time; who is killed says nothing.
            if word in DEADLINES and ms is not None and ms / 1000 > deadlines[DEADLINES[word]] + SLACK_S and not died:
                wrong.append(f"{peer.name} waited {ms} ms: {line}")
        if peer.said("gave up"):
            wrong.append(f"{peer.name} heard nothing for too long")
    wrong += [f"{name} hung" for name in play.stage.hung]
    for writer in play.writers:
        for line in writer.said("statistics"):
            if number_in(line, "memory") > number_in(line, "bound"):
                wrong.append(f"{writer.name} exceeded its memory: {line}")


def account_of(reader, settings):
    """A reader that saw the end has every step, in order, or an error for it, or was told how many were dropped. Of one
    that a writer gave up it need not hear."""
    policy_drops = "when_full" in settings
    there_are = STEPS - ("void_at" in settings)
    read = numbers(reader, "read")
    line = (reader.said("statistics") or [""])[0]
    dropped = number_in(line, "dropped") or 0
    if read != sorted(set(read)):
        return f"{reader.name} read steps out of order: {read}"
    # A timeout is an error for its step when the step was there, and its bytes were not.
    failed = len(reader.said("failed")) + len(reader.said("timeout in_step"))
    if len(read) + dropped + failed != there_are or (dropped and not policy_drops):
        return f"{reader.name} read {read}, met {failed} errors and was told of {dropped} dropped steps, of {there_are}"
    return None


def judge_reader_fault(play, wrong):
    """A reader's fault is nothing to the writer and to other readers."""
    case = play.case
    writer = play.writers[0]
    policy_drops = "when_full" in case.settings
    for rank in play.writers:
        if "throw_at" in case.settings:
            continue
        if not rank.said("written"):
            wrong.append(f"{rank.name} did not write everything")
        if rank.said("close-failed"):
            wrong.append(f"{rank.name}: {rank.said('close-failed')[0]}")
    for other in play.others:
        if other.name == "intruder" or "throw_at" in case.settings:
            continue
        if ending(other) != "end_of_stream":
            wrong.append(f"{other.name} did not see the end: {ending(other)}")
        elif problem := account_of(other, case.settings):
            wrong.append(problem)
    waits = writer.said("timeout")
    if waits and case.action != "stop":
        wrong.append(f"the writer waited in vain: {waits[0]}")
    if waits and not any(str(p.pid) in line for line in waits for p in play.readers[:1]):
        wrong.append(f"the writer's timeout does not name the reader {play.readers[0].pid}: {waits[0]}")
    if waits and policy_drops:
        wrong.append(f"the writer waited although it may drop steps: {waits[0]}")
    wrote = numbers(writer, "wrote")
    seen = f"writer: {len(wrote)} steps" + (", waited naming the reader" if waits else "")
    dropped = sum(line.endswith(" dropped") for line in writer.said("wrote"))
    if dropped:
        seen += f", {dropped} dropped"
    rest = [ending(r) for r in play.readers if r is not play.faulty]
    return (
        seen
        + f"; second reader: {len(numbers(play.others[0], 'read'))} steps, {ending(play.others[0])}"
        + (f"; the cohort's other rank: {rest[0]}" if rest else "")
    )


def judge_writer_fault(play, wrong):
    """Readers end, with what was announced (shared memory) and an outcome that tells the truth."""
    case = play.case
    ended_well = play.faulty.said("written") or (
        case.action == "garbage" and all(w.said("written") for w in play.writers)
    )
    allowed = {"writer_lost", "timeout", "peer_lost", "protocol", "authentication"}
    if case.rank > 0 and case.plane == "shm":
        allowed.add("unsupported")  # a rank that is gone cannot be reached on this host
    seen = []
    for reader in play.readers + [r for r in play.others if r.name != "intruder"]:
        read, end = numbers(reader, "read"), ending(reader)
        if end == "end_of_stream" and not ended_well:
            wrong.append(f"{reader.name} saw an end of the stream that never was")
        if end == "end_of_stream" and ended_well and (problem := account_of(reader, case.settings)):
            wrong.append(problem)
        if end != "end_of_stream" and end not in allowed:
            wrong.append(f"{reader.name} ended with {end}")
        missing = set(numbers(play.writers[0], "wrote")) - set(read)
        readable = case.scenario == "plain" and case.plane == "shm" and case.action == "kill" and reader.said("opened")
        # One whose welcome to the writer's memory was cut off has nothing to read it from.
        if missing and readable and case.point != "send:welcome":
            wrong.append(f"{reader.name} did not read announced steps {sorted(missing)}")
        for line in reader.said("timeout"):
            if str(play.writers[0].pid) not in line and "writer rank" not in line:
                wrong.append(f"{reader.name}'s timeout does not name the writer: {line}")
        waited = ", waited naming the writer" if reader.said("timeout") else ""
        seen.append(f"{reader.name}: {len(read)} steps{waited}, {end}")
    for rank in play.writers:
        if rank is not play.faulty:
            told = [*rank.said("ended"), *rank.said("open-failed"), *rank.lines[-1:], "nothing"][0]
            seen.append(f"{rank.name}: {' '.join(told.split()[:2])}")
    return "; ".join(seen)


def judge(play):
    """What the other side saw, in words, and what is wrong."""
    wrong = []
    judge_programs(play, wrong)
    seen = judge_reader_fault(play, wrong) if play.case.side == "reader" else judge_writer_fault(play, wrong)
    if play.case.point and not play.faulty.faulted:
        seen = f"not reached in this run; {seen}"
    return seen, wrong
