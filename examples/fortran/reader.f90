! Reads the stream "heat" while it is written, and prints two figures of each step. Row 24 of the other languages is
! row 25 here.
program reader_f90
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use penstock
  implicit none
  type(penstock_context) :: context
  type(penstock_reader) :: reader
  integer :: outcome

  call context%create()
  call context%open_stream(reader, 'heat')
  do
    call reader%begin_step(outcome)
    if (outcome /= penstock_ready) exit
    call print_step()
    call reader%end_step()
  end do
  if (outcome /= penstock_end_of_stream) error stop 'reader: the stream did not come to its end'
  call reader%close()
  call context%destroy()

contains

  subroutine print_step()
    real(real64), allocatable :: row(:)
    real(real64) :: time
    integer(int64), allocatable :: shape(:)
    call reader%inquire('T', shape=shape)
    allocate(row(shape(2)))
    call reader%get('T', row, start=[25, 1], count=[1, size(row)])  ! only this row is read
    call reader%attribute('time', time)
    print '(a,i0,7a)', 'step ', reader%step_number(), '  time ', fixed(time, 1), '  row 24: mean ', &
      fixed(sum(row) / size(row), 3), '  max ', fixed(maxval(row), 3)
  end subroutine

  ! With so many digits behind the point.
  function fixed(value, digits) result(text)
    real(real64), intent(in) :: value
    integer, intent(in) :: digits
    character(len=:), allocatable :: text
    character(len=40) :: wide, form
    write(form, '(a,i0,a)') '(f40.', digits, ')'
    write(wide, form) value
    text = trim(adjustl(wide))
  end function

end program
