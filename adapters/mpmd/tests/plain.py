"""plain.c in Python, with mpi4py: FOLDER [SCENARIO]... writes FOLDER/py.<scenario>.<rank>."""

import sys
from array import array
from pathlib import Path

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
left, right = (rank - 1) % size, (rank + 1) % size
folder = Path(sys.argv[1])


def world():
    yield comm.rank, comm.size, comm.name
    yield comm.Get_attr(MPI.TAG_UB) is not None
    copy = comm.Dup()
    yield MPI.Comm.Compare(comm, copy) == MPI.CONGRUENT, comm == MPI.COMM_WORLD
    copy.Free()


def collectives():
    comm.barrier()
    yield comm.bcast({"from": rank}, root=size - 1)
    yield comm.allgather(rank), comm.allreduce(10 + rank), comm.alltoall(list(range(size))), comm.scan(rank)
    yield comm.gather(rank * rank), comm.scatter([2 * i for i in range(size)] if rank == 0 else None)


def point_to_point():
    yield comm.sendrecv(("object", rank), dest=right, source=left)
    request = comm.isend(rank, dest=left, tag=4)
    yield comm.recv(source=MPI.ANY_SOURCE, tag=4)
    request.wait()


def split_dup():
    part = comm.Split(rank % 2, -rank)
    yield part.rank, part.size, part.allreduce(rank)
    if size > 1:
        between = part.Create_intercomm(part.size - 1, comm, 1 - rank % 2, 6)
        whole = between.Merge(bool(rank % 2))
        yield between.remote_size, whole.size
        whole.Free()
        between.Free()
    part.Free()


def cartesian():
    grid = comm.Create_cart(MPI.Compute_dims(size, 2), periods=[True, False], reorder=True)
    source, target = grid.Shift(0, 1)
    yield grid.dims, grid.coords, source, target, grid.sendrecv(rank, dest=target, source=source)
    grid.Free()


def window():
    memory = array("i", [-1] * size)
    win = MPI.Win.Create(memory, memory.itemsize, comm=comm)
    win.Fence()
    mine = array("i", [rank])
    for other in range(size):
        win.Put([mine, MPI.INT], other, rank)
    win.Fence()
    yield memory.tolist()
    win.Free()
    win = MPI.Win.Allocate(4, 4, comm=comm)
    win.Fence()
    win.Put([mine, MPI.INT], right, 0)
    win.Fence()
    yield memoryview(win.tomemory()).cast("i").tolist()
    win.Free()


def file():
    path = folder / "py.data"
    handle = MPI.File.Open(comm, str(path), MPI.MODE_CREATE | MPI.MODE_RDWR)
    handle.Set_size(0)
    handle.Write_at_all(4 * rank, array("i", [7 * rank]))
    handle.Sync()
    comm.barrier()
    yield handle.Get_size()
    handle.Close()
    yield path.read_bytes().hex()


def non_blocking():
    mine, total, x = array("i", [rank]), array("i", [0]), array("i", [5 if rank == 0 else 0])
    MPI.Request.Waitall([comm.Iallreduce(mine, total), comm.Ibcast(x), comm.Ibarrier()])
    yield total[0], x[0]


def persistent():
    mine, theirs = array("i", [0]), array("i", [-1])
    requests = [comm.Recv_init(theirs, left, 8), comm.Send_init(mine, right, 8)]
    for i in range(3):
        mine[0] = 10 * i + rank
        MPI.Prequest.Startall(requests)
        MPI.Request.Waitall(requests)
        yield theirs[0]
    for request in requests:
        request.Free()


def groups():
    group = comm.Get_group()
    turned = group.Range_incl([(size - 1, 0, -1)])
    other = comm.Create(turned)
    yield group.size, other.rank, group.Translate_ranks(None, turned)
    other.Free()


def errors():
    comm.Set_errhandler(MPI.ERRORS_RETURN)
    try:
        comm.send(0, dest=size)
    except MPI.Exception as error:
        yield error.Get_error_class() == MPI.ERR_RANK
    yield comm.allreduce(rank)


for scenario in (
    world,
    collectives,
    point_to_point,
    split_dup,
    cartesian,
    window,
    file,
    non_blocking,
    persistent,
    groups,
    errors,
):
    name = scenario.__name__.replace("_", "-")
    if not sys.argv[2:] or name in sys.argv[2:]:
        with open(folder / f"py.{name}.{rank}", "w", encoding="utf-8") as report:
            for value in scenario():
                print(value, file=report, flush=True)
