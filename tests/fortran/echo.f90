! fortran_echo: gets all values of the stream "in" and puts them into the stream "out", step by step.
program echo
  use, intrinsic :: iso_fortran_env
  use penstock
  implicit none
  type(penstock_context) :: context
  type(penstock_reader) :: reader
  type(penstock_writer) :: writer
  integer :: outcome

  call context%create()
  call context%create_stream(writer, 'out')
  call context%open_stream(reader, 'in')
  do
    call reader%begin_step(outcome)
    if (outcome /= penstock_ready) exit
    call writer%begin_step()
    call of_int8('int8')
    call of_int16('int16')
    call of_int32('int32')
    call of_int64('int64')
    call of_float32('float32')
    call of_float64('float64')
    call of_complex64('complex64')
    call of_complex128('complex128')
    call of_bool('bool')
    call of_wide_bool('wide')
    call texts()
    call writer%end_step()
    call reader%end_step()
  end do
  if (outcome /= penstock_end_of_stream) error stop 'not the end of the stream'
  call reader%close()
  call writer%close()
  call context%destroy()

contains

  subroutine of_int8(name)
    character(len=*), intent(in) :: name
    integer(int8), target :: x(120)
    integer(int8), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_int16(name)
    character(len=*), intent(in) :: name
    integer(int16), target :: x(120)
    integer(int16), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_int32(name)
    character(len=*), intent(in) :: name
    integer(int32), target :: x(120)
    integer(int32), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_int64(name)
    character(len=*), intent(in) :: name
    integer(int64), target :: x(120)
    integer(int64), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_float32(name)
    character(len=*), intent(in) :: name
    real(real32), target :: x(120)
    real(real32), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_float64(name)
    character(len=*), intent(in) :: name
    real(real64), target :: x(120)
    real(real64), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_complex64(name)
    character(len=*), intent(in) :: name
    complex(real32), target :: x(120)
    complex(real32), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_complex128(name)
    character(len=*), intent(in) :: name
    complex(real64), target :: x(120)
    complex(real64), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_bool(name)
    character(len=*), intent(in) :: name
    logical(int8), target :: x(120)
    logical(int8), pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  subroutine of_wide_bool(name)
    character(len=*), intent(in) :: name
    logical, target :: x(120)
    logical, pointer :: x2(:, :), x3(:, :, :), x4(:, :, :, :)
    include 'put_and_get.inc'
  end subroutine

  ! The text variable "label", and the attributes "text" and "texts", each in the two ways to get it.
  subroutine texts()
    character(len=20) :: padded, vector(3)
    call reader%get('label', padded)
    call writer%put('label', padded)
    call writer%put('label_length', len(reader%text('label')))
    call reader%attribute('text', padded)
    call writer%put_attribute('text', padded)
    call writer%put_attribute('text_again', reader%attribute_text('text'))
    call reader%attribute('texts', vector)
    call writer%put_attribute('texts', vector)
    call writer%put_attribute('texts_second', reader%attribute_text('texts', index=2))
  end subroutine

end program
