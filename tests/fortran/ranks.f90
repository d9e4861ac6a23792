! mpiexec -n N fortran_ranks: each rank puts its columns of the array "T" of the stream "ranks", and gets its rows of
! it.
program ranks
  use mpi
  use penstock
  use penstock_mpi
  implicit none
  type(penstock_context) :: context
  type(penstock_writer) :: writer
  type(penstock_reader) :: reader
  integer, parameter :: rows = 5, columns = 7
  integer :: rank, size, first, last, step, outcome, i, j, error
  integer, allocatable :: T(:, :), U(:, :)

  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, size, error)
  call context%create()
  call context%create_stream(writer, 'ranks', cohort=penstock_mpi_cohort(MPI_COMM_WORLD))
  call context%open_stream(reader, 'ranks', cohort=penstock_mpi_cohort(MPI_COMM_WORLD))
  first = columns * rank / size + 1
  last = columns * (rank + 1) / size
  allocate(T(rows, first - 1:last + 1))  ! with a column of each neighbour
  do step = 0, 2
    do j = first, last
      T(:, j) = [(100 * step + 10 * i + j, i = 1, rows)]
    end do
    call writer%begin_step()
    call writer%put('T', T(:, first:last), start=[1, first], shape=[rows, columns])
    call writer%put('rank', rank, local=.true.)
    call writer%end_step()
  end do
  first = rows * rank / size + 1
  last = rows * (rank + 1) / size
  do step = 0, 2
    call reader%begin_step(outcome)
    if (outcome /= penstock_ready) error stop 'no step'
    allocate(U(first:last, columns))
    call reader%get('T', U, start=[first, 1])
    do j = 1, columns
      if (any(U(:, j) /= [(100 * step + 10 * i + j, i = first, last)])) error stop 'other rows'
    end do
    deallocate(U)
    call reader%end_step()
  end do
  deallocate(T)
  call writer%close()
  call reader%close()
  call context%destroy()
  call MPI_Finalize(error)
end program
