! A short plain.c with mpif.h: FOLDER writes FOLDER/mpif.basics.<rank>.
program plain_mpif
  implicit none
  include 'mpif.h'
  integer :: rank, ranks, total, own, part, given, code
  character(len=1024) :: folder
  character(len=1200) :: path

  call MPI_Init_thread(MPI_THREAD_FUNNELED, given, code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  call get_command_argument(1, folder)
  write(path, '(a,a,i0)') trim(folder), '/mpif.basics.', rank
  open(unit=20, file=trim(path), status='replace')
  write(20, *) rank, ranks
  call MPI_Barrier(MPI_COMM_WORLD, code)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
  write(20, *) total
  call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, part, code)
  call MPI_Comm_rank(part, own, code)
  write(20, *) own
  close(20)
  call MPI_Comm_free(part, code)
  call MPI_Finalize(code)
end program
