! Several ranks write one global array, each its rows of it: mpiexec -n 2 mpi_writer_f90
program mpi_writer_f90
  use, intrinsic :: iso_fortran_env, only: real64
  use mpi_f08
  use penstock
  use penstock_mpi
  implicit none
  integer, parameter :: rows = 100, columns = 50
  type(penstock_context) :: context
  type(penstock_writer) :: writer
  integer :: rank, size, first, last, number
  real(real64), allocatable :: part(:, :)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  first = rows * rank / size + 1
  last = rows * (rank + 1) / size
  allocate(part(first:last, columns))
  call context%create()
  call context%create_stream(writer, 'rows', cohort=penstock_mpi_cohort(MPI_COMM_WORLD%mpi_val))
  do number = 0, 9
    part = rank + 10 * number
    call writer%begin_step()
    call writer%put('T', part, start=[first, 1], shape=[rows, columns])
    call writer%end_step()
  end do
  call writer%close()
  call context%destroy()
  call MPI_Finalize()
end program
