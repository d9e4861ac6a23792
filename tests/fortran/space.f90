! fortran_space: gets what Python has put into the array "T" of a space, and puts into "U".
program space
  use, intrinsic :: iso_fortran_env
  use penstock
  use penstock_space
  implicit none
  type(penstock_context) :: context
  type(penstock_array_space) :: arrays
  integer(int64), allocatable :: shape(:)
  real(real32) :: rows(2, 5), wide(8, 5), plane(6)
  character(len=200) :: message
  integer :: dtype, i, j, stat
  logical :: masks(6, 5)

  call context%create()
  call arrays%create(context, options='timeout_ms=30000')
  call arrays%inquire('T', dtype, shape)
  call check(dtype == penstock_float64 .and. all(shape == [6, 5]), 'dtype and shape')
  call arrays%wait('T', 3, [1, 1], [6, 5])
  call check(arrays%latest('T') == 3, 'the latest version')

  wide = -1
  call arrays%get('T', 3, rows, start=[5, 1])
  call arrays%get('T', 3, wide(2:7, 5:1:-1))
  call arrays%get('T', 3, plane, start=[1, 4], count=[6, 1])
  do j = 1, 5
    do i = 1, 6
      call check(nint(wide(i + 1, 6 - j)) == 10 * i + j, 'a section with a negative stride')
    end do
    call check(all(nint(rows(:, j)) == [50, 60] + j), 'rows, of another type')
  end do
  call check(all(nint(plane) == [(10 * i + 4, i = 1, 6)]), 'a column')
  call check(all(nint(wide(1:8:7, :)) == -1), 'what is beside the section')

  call arrays%define('U', penstock_float64, [6, 5], convert=penstock_convert_at_reader, keep=2, &
                     readers=['Python', 'me    '])
  call arrays%put('U', 0, wide(2:4, 5:1:-1))
  call arrays%put('U', 0, wide(5:7, 5:1:-1), start=[4_int64, 1_int64])
  call arrays%done('U', 0, 'me')
  call arrays%define('masks', penstock_boolean, [6, 5])
  masks = wide(2:7, 5:1:-1) > 30
  call arrays%put('masks', 0, masks)
  masks = .false.
  call arrays%get('masks', 0, masks)
  call check(all(masks .eqv. wide(2:7, 5:1:-1) > 30), 'masks')
  call check(arrays%latest('masks') == 0, 'latest')

  message = ''
  call arrays%put('U', 1, wide, stat=stat, errmsg=message)
  call check(stat == penstock_err_invalid_argument .and. message /= '', 'a box that is too large')
  call arrays%get('U', 1, rows, timeout_ms=1, stat=stat, errmsg=message)
  call check(stat == penstock_err_timeout .and. index(message, 'U') > 0, 'a version that is not there')
  deallocate(shape)
  call arrays%destroy()
  call context%destroy()

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (.not. holds) error stop 'not so: '//what
  end subroutine

end program
