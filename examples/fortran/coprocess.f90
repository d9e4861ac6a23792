! A plate that is heated at one edge, with a coprocessor: analyses of the channel "heat" get the temperature without a
! copy at the cycles that they ask for, and may turn the heat down.
program coprocess_f90
  use, intrinsic :: iso_fortran_env, only: real64
  use penstock
  use penstock_coprocessing
  implicit none
  integer, parameter :: n = 80
  type(penstock_context) :: context
  type(penstock_coprocessor) :: coprocessor
  type(penstock_field) :: temperature
  real(real64), asynchronous :: T(0:n + 1, 0:n + 1)  ! with a halo
  real(real64) :: source
  integer :: cycle
  logical :: wanted

  T = 0
  source = 1000
  call context%create()
  call coprocessor%create(context, 'heat')
  call coprocessor%set_mesh('grid', penstock_mesh_uniform, shape=[n, n])
  call coprocessor%field('grid', 'T', penstock_float64, temperature, units='K')
  call coprocessor%declare('source', source, least=0d0, greatest=2000d0)
  call coprocessor%add_pipeline('cool.py')  ! an analysis will come: the first request waits for what it asks for
  do cycle = 0, 99
    call advance()
    call coprocessor%request(cycle, 0.1d0 * cycle, wanted)
    if (wanted) then  ! at most cycles nothing is asked for
      call coprocessor%put(temperature, T(1:n, 1:n), lend=.true.)
      call coprocessor%coprocess()
    end if
    call coprocessor%value('source', source)
  end do
  call coprocessor%finalize()
  call context%destroy()
  print '(a,f0.1)', 'coprocess: the source ended at ', source

contains

  ! One explicit time step of the heat equation; the edge at x = 1 has the temperature of the source.
  subroutine advance()
    real(real64) :: old(0:n + 1, 0:n + 1)
    integer :: i, j
    old = T
    do j = 1, n
      do i = 1, n
        T(i, j) = T(i, j) + 0.2d0 * (old(i - 1, j) + old(i + 1, j) + old(i, j - 1) + old(i, j + 1) - 4 * old(i, j))
      end do
    end do
    T(1, 1:n) = source
  end subroutine

end program
