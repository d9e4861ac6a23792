! Writes the temperature of a cooling plate as the stream "heat": 50 steps.
program writer_f90
  use, intrinsic :: iso_fortran_env, only: real64
  use penstock
  implicit none
  integer, parameter :: rows = 64, columns = 96
  type(penstock_context) :: context
  type(penstock_writer) :: writer
  real(real64) :: T(rows, columns)
  integer :: step

  T = 0
  T(25:40, 33:64) = 100

  call context%create()
  call context%create_stream(writer, 'heat')
  call writer%put_attribute('T/units', 'degC')
  do step = 1, 50
    call advance()
    call writer%begin_step()
    call writer%put('T', T)
    call writer%put_attribute('time', 0.2d0 * step)
    call writer%end_step()
  end do
  call writer%close()
  call context%destroy()

contains

  ! One explicit time step of the heat equation; the edge stays at 0.
  subroutine advance()
    real(real64) :: old(rows, columns)
    integer :: i, j
    old = T
    do j = 2, columns - 1
      do i = 2, rows - 1
        T(i, j) = T(i, j) + 0.2d0 * (old(i - 1, j) + old(i + 1, j) + old(i, j - 1) + old(i, j + 1) - 4 * old(i, j))
      end do
    end do
  end subroutine

end program
