! A short plain.c with `use mpi_f08`: FOLDER writes FOLDER/f08.basics.<rank>.
program plain_f08
  use mpi_f08
  implicit none
  integer :: rank, ranks, total, in, own
  integer(kind=MPI_ADDRESS_KIND) :: value
  logical :: found
  type(MPI_Comm) :: part
  type(MPI_Request) :: request
  character(len=1024) :: folder
  character(len=1200) :: path

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  call get_command_argument(1, folder)
  write(path, '(a,a,i0)') trim(folder), '/f08.basics.', rank
  open(unit=20, file=trim(path), status='replace')
  write(20, *) rank, ranks
  call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, found)
  write(20, *) found
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
  write(20, *) total
  call MPI_Sendrecv(rank, 1, MPI_INTEGER, mod(rank + 1, ranks), 3, in, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 3, &
                    MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  write(20, *) in
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, part)
  call MPI_Comm_rank(part, own)
  write(20, *) own
  call MPI_Iallreduce(own, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, request)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  write(20, *) total
  close(20)
  call MPI_Comm_free(part)
  call MPI_Finalize()
end program
