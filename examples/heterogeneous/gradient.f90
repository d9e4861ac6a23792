! array-gradient: the gradient of V in one part of the grid, in Fortran.
!
!   array-gradient PART PARTS VERSIONS REPORT
!
! gets V as float32 in columns, cut along its last dimension, with a plane of each neighbour; the grid is periodic. It puts
! |grad V| (central differences, cells of size 1) back as the array "gradient", and the part's sum and maximum as a row of
! "gradient_statistics".
program gradient
  use, intrinsic :: iso_c_binding
  use penstock
  use penstock_space
  implicit none
  type(penstock_context) :: context
  type(penstock_array_space) :: arrays
  integer(c_int64_t), allocatable :: shape(:)
  integer(c_int64_t) :: part, parts, first, planes
  integer :: versions, version
  real(c_float), allocatable :: V(:, :, :), magnitude(:, :, :)
  real(c_double), allocatable :: waits(:), gets(:), puts(:), works(:)  ! seconds, by version

  part = number(1)
  parts = number(2)
  versions = int(number(3))
  allocate(waits(versions), gets(versions), puts(versions), works(versions))
  call context%create()
  call arrays%create(context, options='timeout_ms=120000')
  call arrays%inquire('V', shape=shape)
  call arrays%define('gradient', penstock_float32, shape, keep=8, readers=['pictures'])
  call arrays%define('gradient_statistics', penstock_float64, [parts, 2_c_int64_t])
  first = (part - 1) * shape(3) / parts + 1
  planes = part * shape(3) / parts + 1 - first
  allocate(V(shape(1), shape(2), 0:planes + 1), magnitude(shape(1), shape(2), planes))
  do version = 0, versions - 1
    call analyse(version, waits(version + 1), gets(version + 1), works(version + 1), puts(version + 1))
  end do
  call arrays%destroy()
  call context%destroy()
  call report()

contains

  subroutine analyse(version, wait_s, get_s, work_s, put_s)
    integer, intent(in) :: version
    real(c_double), intent(out) :: wait_s, get_s, work_s, put_s
    integer(c_int64_t) :: below, above
    real(c_double) :: begin
    begin = now()
    call arrays%wait('V', version, [1, 1, 1], shape)
    wait_s = lap(begin)
    below = modulo(first - 2, shape(3)) + 1
    above = modulo(first + planes - 1, shape(3)) + 1
    call arrays%get('V', version, V(:, :, 0), start=[1_c_int64_t, 1_c_int64_t, below])
    call arrays%get('V', version, V(:, :, 1:planes), start=[1_c_int64_t, 1_c_int64_t, first])
    call arrays%get('V', version, V(:, :, planes + 1), start=[1_c_int64_t, 1_c_int64_t, above])
    get_s = lap(begin)
    call differentiate()
    work_s = lap(begin)
    call arrays%put('gradient', version, magnitude, start=[1_c_int64_t, 1_c_int64_t, first])
    call arrays%put('gradient_statistics', version, statistics(), start=[part, 1_c_int64_t], count=[1, 2])
    put_s = lap(begin)
  end subroutine

  function statistics()
    real(c_double) :: statistics(2)
    statistics = [sum(real(magnitude, c_double)), real(maxval(magnitude), c_double)]
  end function

  subroutine differentiate()
    integer(c_int64_t) :: i, j, k, left, right, back, front
    do k = 1, planes
      do j = 1, shape(2)
        back = modulo(j - 2, shape(2)) + 1
        front = modulo(j, shape(2)) + 1
        do i = 1, shape(1)
          left = merge(i - 1, shape(1), i > 1)
          right = merge(i + 1, 1_c_int64_t, i < shape(1))
          magnitude(i, j, k) = 0.5 * sqrt((V(right, j, k) - V(left, j, k))**2 + (V(i, front, k) - V(i, back, k))**2 &
                                          + (V(i, j, k + 1) - V(i, j, k - 1))**2)
        end do
      end do
    end do
  end subroutine

  ! Seconds since `since`, which becomes now.
  real(c_double) function lap(since)
    real(c_double), intent(inout) :: since
    real(c_double) :: before
    before = since
    since = now()
    lap = since - before
  end function

  real(c_double) function now()
    integer(c_int64_t) :: count, rate
    call system_clock(count, rate)
    now = real(count, c_double) / real(rate, c_double)
  end function

  integer(c_int64_t) function number(argument)
    integer, intent(in) :: argument
    character(len=32) :: word
    integer :: status
    if (command_argument_count() /= 4) error stop 'usage: array-gradient PART PARTS VERSIONS REPORT'
    call get_command_argument(argument, word)
    read(word, *, iostat=status) number
    if (status /= 0 .or. number < 1) error stop 'array-gradient: PART, PARTS and VERSIONS are numbers from 1'
  end function

  ! As JSON.
  subroutine report()
    character(len=4096) :: path
    integer :: file
    print '(a,i0,a,4(a,f0.3))', 'array-gradient: ', versions, ' versions, seconds:', ' waiting ', sum(waits), &
      ', get ', sum(gets), ', analysis ', sum(works), ', put ', sum(puts)
    call get_command_argument(4, path)
    open(newunit=file, file=trim(path), status='replace', action='write')
    write(file, '(a,i0,a,i0,a)') '{"program": "array-gradient", "steps": ', versions, ', "bytes": ', &
      versions * size(V, kind=c_int64_t) * 4, ','
    write(file, '(4(a,es12.5),a)') '"wait_s":', sum(waits), ', "transfer_s":', sum(gets), ', "analysis_s":', sum(works), &
      ', "put_s":', sum(puts), ','
    write(file, '(a,*(es12.5,:,","))', advance='no') '"gets_s": [', gets
    write(file, '(a)') ']}'
    close(file)
  end subroutine

end program
