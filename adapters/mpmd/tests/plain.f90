! plain.c in Fortran, with `use mpi`: FOLDER [SCENARIO]... writes FOLDER/f.<scenario>.<rank>.
program plain
  use mpi
  implicit none
  integer, parameter :: out = 20
  integer :: rank, ranks, code
  character(len=1024) :: folder

  call MPI_Init(code)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, code)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, code)
  call get_command_argument(1, folder)
  if (wanted('world')) call world()
  if (wanted('collectives')) call collectives()
  if (wanted('point-to-point')) call point_to_point()
  if (wanted('split-dup')) call split_dup()
  if (wanted('cartesian')) call cartesian()
  if (wanted('window')) call window()
  if (wanted('file')) call file()
  if (wanted('non-blocking')) call non_blocking()
  if (wanted('persistent')) call persistent()
  if (wanted('groups')) call groups()
  if (wanted('errors')) call errors()
  call MPI_Finalize(code)

contains

  ! Whether to run it; opens its report.
  logical function wanted(name)
    character(len=*), intent(in) :: name
    character(len=64) :: word
    character(len=1200) :: path
    logical :: is_open
    integer :: i
    inquire(unit=out, opened=is_open)
    if (is_open) close(out)
    wanted = command_argument_count() == 1
    do i = 2, command_argument_count()
      call get_command_argument(i, word)
      if (word == name) wanted = .true.
    end do
    if (.not. wanted) return
    write(path, '(a,a,a,a,i0)') trim(folder), '/f.', name, '.', rank
    open(unit=out, file=trim(path), status='replace')
  end function

  subroutine say(name, values)
    character(len=*), intent(in) :: name
    integer, intent(in) :: values(:)
    write(out, '(a,*(1x,i0))') name, values
    flush(out)
  end subroutine

  subroutine world()
    integer :: length, kind, copy
    integer(kind=MPI_ADDRESS_KIND) :: value
    integer :: old_value
    logical :: found
    character(len=MPI_MAX_OBJECT_NAME) :: name
    call say('rank of size', [rank, ranks])
    call MPI_Comm_get_name(MPI_COMM_WORLD, name, length, code)
    write(out, '(a)') name(1:length)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, value, found, code)
    write(out, '(a,2l2)') 'tag bound', found, value >= 32767
    call MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, old_value, found, code)
    write(out, '(a,2l2)') 'tag bound', found, old_value >= 32767
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, code)
    call MPI_Comm_compare(MPI_COMM_WORLD, copy, kind, code)
    write(out, '(a,l2)') 'congruent', kind == MPI_CONGRUENT
    call MPI_Comm_compare(MPI_COMM_WORLD, MPI_COMM_WORLD, kind, code)
    write(out, '(a,l2)') 'same', kind == MPI_IDENT
    call MPI_Comm_free(copy, code)
  end subroutine

  subroutine collectives()
    integer :: total, x, all(ranks)
    double precision :: d
    d = merge(2.5d0, 0d0, rank == ranks - 1)
    call MPI_Barrier(MPI_COMM_WORLD, code)
    call MPI_Bcast(d, 1, MPI_DOUBLE_PRECISION, ranks - 1, MPI_COMM_WORLD, code)
    write(out, '(a,f6.2)') 'bcast', d
    call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
    call say('allreduce', [total])
    x = 10 + rank
    call MPI_Allreduce(MPI_IN_PLACE, x, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
    call say('in place', [x])
    call MPI_Allgather(rank, 1, MPI_INTEGER, all, 1, MPI_INTEGER, MPI_COMM_WORLD, code)
    call say('allgather', all)
    call MPI_Scan(rank, x, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
    call say('scan', [x])
  end subroutine

  subroutine point_to_point()
    integer :: right, left, status(MPI_STATUS_SIZE), requests(2)
    integer, asynchronous :: in
    right = mod(rank + 1, ranks)
    left = mod(rank + ranks - 1, ranks)
    call MPI_Sendrecv(rank, 1, MPI_INTEGER, right, 3, in, 1, MPI_INTEGER, left, 3, MPI_COMM_WORLD, status, code)
    call say('ring', [in, status(MPI_SOURCE)])
    call MPI_Irecv(in, 1, MPI_INTEGER, MPI_ANY_SOURCE, 4, MPI_COMM_WORLD, requests(1), code)
    call MPI_Isend(rank, 1, MPI_INTEGER, left, 4, MPI_COMM_WORLD, requests(2), code)
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, code)
    call say('back', [in])
  end subroutine

  subroutine split_dup()
    integer :: part, copy, between, whole, members, others, total
    call MPI_Comm_split(MPI_COMM_WORLD, mod(rank, 2), -rank, part, code)
    call MPI_Comm_size(part, members, code)
    call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, part, code)
    call say('split', [members, total])
    call MPI_Comm_dup(MPI_COMM_WORLD, copy, code)
    call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, copy, code)
    call say('copy', [total])
    if (ranks > 1) then
      call MPI_Intercomm_create(part, members - 1, MPI_COMM_WORLD, 1 - mod(rank, 2), 6, between, code)
      call MPI_Comm_remote_size(between, others, code)
      call MPI_Intercomm_merge(between, rank > 0, whole, code)
      call MPI_Comm_size(whole, members, code)
      call say('between', [others, members])
      call MPI_Comm_free(whole, code)
      call MPI_Comm_free(between, code)
    end if
    call MPI_Comm_free(copy, code)
    call MPI_Comm_free(part, code)
  end subroutine

  subroutine cartesian()
    integer :: dims(2), grid, coords(2), from, to, in
    dims = 0
    in = -1
    call MPI_Dims_create(ranks, 2, dims, code)
    call MPI_Cart_create(MPI_COMM_WORLD, 2, dims, [.true., .false.], .true., grid, code)
    call MPI_Cart_coords(grid, rank, 2, coords, code)
    call MPI_Cart_shift(grid, 0, 1, from, to, code)
    call MPI_Sendrecv(rank, 1, MPI_INTEGER, to, 0, in, 1, MPI_INTEGER, from, 0, grid, MPI_STATUS_IGNORE, code)
    call say('grid', [dims, coords, from, to, in])
    call MPI_Comm_free(grid, code)
  end subroutine

  subroutine window()
    integer :: win, i
    integer, asynchronous :: exposed(ranks)
    integer(kind=MPI_ADDRESS_KIND) :: bytes, place
    exposed = -1
    bytes = 4 * ranks
    place = rank
    call MPI_Win_create(exposed, bytes, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, code)
    call MPI_Win_fence(0, win, code)
    do i = 0, ranks - 1
      call MPI_Put(rank, 1, MPI_INTEGER, i, place, 1, MPI_INTEGER, win, code)
    end do
    call MPI_Win_fence(0, win, code)
    call say('put by', exposed)
    call MPI_Win_free(win, code)
  end subroutine

  subroutine file()
    integer :: handle, all(ranks)
    integer(kind=MPI_OFFSET_KIND) :: place, bytes
    call MPI_File_open(MPI_COMM_WORLD, trim(folder) // '/f.data', MPI_MODE_CREATE + MPI_MODE_RDWR, MPI_INFO_NULL, &
                       handle, code)
    bytes = 0
    call MPI_File_set_size(handle, bytes, code)
    place = 4 * rank
    call MPI_File_write_at_all(handle, place, 7 * rank, 1, MPI_INTEGER, MPI_STATUS_IGNORE, code)
    call MPI_File_sync(handle, code)
    call MPI_Barrier(MPI_COMM_WORLD, code)
    place = 0
    call MPI_File_read_at_all(handle, place, all, ranks, MPI_INTEGER, MPI_STATUS_IGNORE, code)
    call MPI_File_get_size(handle, bytes, code)
    call say('file', [int(bytes), all])
    call MPI_File_close(handle, code)
  end subroutine

  subroutine non_blocking()
    integer :: requests(3)
    integer, asynchronous :: x, total
    x = merge(5, 0, rank == 0)
    call MPI_Ibcast(x, 1, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(1), code)
    call MPI_Iallreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(2), code)
    call MPI_Ibarrier(MPI_COMM_WORLD, requests(3), code)
    call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE, code)
    call say('bcast and sum', [x, total])
  end subroutine

  subroutine persistent()
    integer :: i, requests(2)
    integer, asynchronous :: in, mine
    call MPI_Recv_init(in, 1, MPI_INTEGER, mod(rank + ranks - 1, ranks), 8, MPI_COMM_WORLD, requests(1), code)
    call MPI_Send_init(mine, 1, MPI_INTEGER, mod(rank + 1, ranks), 8, MPI_COMM_WORLD, requests(2), code)
    do i = 1, 3
      mine = 10 * i + rank
      call MPI_Startall(2, requests, code)
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE, code)
      call say('round', [i, in])
    end do
    call MPI_Request_free(requests(1), code)
    call MPI_Request_free(requests(2), code)
  end subroutine

  subroutine groups()
    integer :: all, turned, comm, own, members
    call MPI_Comm_group(MPI_COMM_WORLD, all, code)
    call MPI_Group_size(all, members, code)
    call MPI_Group_range_incl(all, 1, reshape([ranks - 1, 0, -1], [3, 1]), turned, code)
    call MPI_Comm_create(MPI_COMM_WORLD, turned, comm, code)
    call MPI_Comm_rank(comm, own, code)
    call say('turned round', [members, own])
    call MPI_Comm_free(comm, code)
    call MPI_Group_free(turned, code)
    call MPI_Group_free(all, code)
  end subroutine

  subroutine errors()
    integer :: kind, handler, other
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, code)
    call MPI_Send(rank, 1, MPI_INTEGER, ranks, 0, MPI_COMM_WORLD, code)
    call MPI_Error_class(code, kind, other)
    call MPI_Comm_get_errhandler(MPI_COMM_WORLD, handler, other)
    write(out, '(a,2l2)') 'no such rank', kind == MPI_ERR_RANK, handler == MPI_ERRORS_RETURN
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, code)
    call MPI_Allreduce(rank, other, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, code)
    call say('goes on', [other])
  end subroutine

end program
