"""Two hosts made of namespaces: hosts.py KEEP... Says "ready PID_A PID_B" and keeps them until its standard input ends.

Each has a network of its own (10.77.0.1 and 10.77.0.2, joined by a cable), a host name, and its own /tmp and /dev/shm.
KEEP: folders that must be seen on both, wherever they lie. To be run in new namespaces of users (unless root), network
and mounts.
"""

import pathlib
import subprocess
import sys


def run(*command):
    subprocess.run([str(word) for word in command], check=True)


def be_host(name, keep):
    """Inside one host. The folders to keep pass through /mnt, as /tmp may hide them."""
    run("hostname", name)
    run("mount", "--make-rprivate", "/")
    run("mount", "-t", "tmpfs", "tmpfs", "/mnt")
    passing = [(pathlib.Path("/mnt", str(i)), pathlib.Path(folder)) for i, folder in enumerate(keep)]
    for shelf, folder in passing:
        shelf.mkdir()
        run("mount", "--rbind", folder, shelf)
    run("mount", "-t", "tmpfs", "tmpfs", "/tmp")
    run("mount", "-t", "tmpfs", "tmpfs", "/dev/shm")
    for shelf, folder in passing:
        if pathlib.Path("/tmp") in folder.parents:
            folder.mkdir(parents=True)
            run("mount", "--rbind", shelf, folder)
    run("ip", "link", "set", "lo", "up")
    print("up", flush=True)
    sys.stdin.read()


def make_hosts(keep):
    hosts = []
    for name in ("host-a", "host-b"):
        command = ["unshare", "--net", "--mount", "--uts", "--ipc", sys.executable, __file__, "--host", name, *keep]
        hosts.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE))
        assert hosts[-1].stdout.readline() == b"up\n"
    a, b = (host.pid for host in hosts)
    run("ip", "link", "add", "cable", "netns", a, "type", "veth", "peer", "name", "cable", "netns", b)
    for number, pid in enumerate((a, b), start=1):
        enter = ["nsenter", "--net", "--target", pid]
        run(*enter, "ip", "address", "add", f"10.77.0.{number}/24", "dev", "cable")
        run(*enter, "ip", "link", "set", "cable", "up")
    print("ready", a, b, flush=True)
    sys.stdin.read()
    for host in hosts:
        host.stdin.close()
        host.wait()


if sys.argv[1] == "--host":
    be_host(sys.argv[2], sys.argv[3:])
else:
    make_hosts(sys.argv[1:])
