! The program of examples/mesh/plate.py, in Fortran: heat spreads in a plate. The mesh and its states go to the region
! "plate": into a file, to a stream, or nowhere.
program plate_f90
  use, intrinsic :: iso_fortran_env, only: int32, real64
  use penstock
  use penstock_regions
  implicit none
  integer, parameter :: n = 40, m = n + 1, states = 10  ! elements and nodes along each edge
  type(penstock_context) :: context
  type(penstock_model) :: model
  type(penstock_region_sink) :: region
  integer :: nodes, plate, hot, coordinates, temperature, connectivity, flux, members
  integer :: state, step
  real(real64) :: T(m, m)  ! T(i, j) is at x = (i - 1) / n, y = (j - 1) / n

  call context%create()
  call describe()
  call region%create(context, 'plate')  ! where it goes is configuration
  call region%define(model)
  call write_mesh()
  T = 0
  T(1, :) = 1
  do state = 0, states - 1
    do step = 1, 50
      call advance()
    end do
    T(:, 1) = T(:, 2)
    T(:, m) = T(:, n)
    call region%begin_state(0.01d0 * state)
    call region%write(nodes, temperature, T)
    call region%write(plate, flux, flux_of_elements())
    call region%end_state()
  end do
  call region%close()
  call model%destroy()
  call context%destroy()

contains

  subroutine describe()
    call model%create('a plate that is heated at one edge', 2)
    call model%add_entity(penstock_region, 'region', 0, 1)
    call model%add_entity(penstock_node_block, 'nodeblock_1', 1, m * m, nodes)
    call model%add_entity(penstock_element_block, 'plate', 10, n * n, plate, topology='quad4')
    call model%add_entity(penstock_node_set, 'hot', 100, m, hot)
    call model%add_field(nodes, 'coordinates', penstock_float64, penstock_role_mesh, coordinates, storage='vector_2d')
    call model%add_field(nodes, 'temperature', penstock_float64, penstock_role_transient, temperature)
    call model%add_field(plate, 'connectivity', penstock_int32, penstock_role_mesh, connectivity, storage='[4]')
    call model%add_field(plate, 'flux', penstock_float64, penstock_role_transient, flux, storage='vector_2d')
    call model%add_field(hot, 'members', penstock_int32, penstock_role_mesh, members)
  end subroutine

  ! Numbers of nodes count from 0 in all languages.
  subroutine write_mesh()
    real(real64) :: x(2, m, m)
    integer(int32) :: corners(4, n, n)
    integer :: i, j
    do j = 1, m
      do i = 1, m
        x(:, i, j) = [i - 1, j - 1] / real(n, real64)
        if (i < m .and. j < m) corners(:, i, j) = i - 1 + (j - 1) * m + [0, 1, m + 1, m]
      end do
    end do
    call region%write(nodes, coordinates, x)
    call region%write(plate, connectivity, corners)
    call region%write(hot, members, [((j - 1) * m, j = 1, m)])
  end subroutine

  subroutine advance()
    T(2:n, 2:n) = T(2:n, 2:n) + 0.2d0 * (T(2:n, 3:m) + T(2:n, 1:n - 1) + T(3:m, 2:n) + T(1:n - 1, 2:n) &
                                         - 4 * T(2:n, 2:n))
  end subroutine

  ! Minus the mean slope at the four corners of each element.
  function flux_of_elements() result(q)
    real(real64) :: q(2, n, n)
    real(real64) :: slope(2, m, m)
    integer :: i, j
    do j = 1, m
      do i = 1, m
        slope(1, i, j) = (T(min(i + 1, m), j) - T(max(i - 1, 1), j)) * n / (min(i + 1, m) - max(i - 1, 1))
        slope(2, i, j) = (T(i, min(j + 1, m)) - T(i, max(j - 1, 1))) * n / (min(j + 1, m) - max(j - 1, 1))
      end do
    end do
    q = -0.25d0 * (slope(:, :n, :n) + slope(:, 2:, :n) + slope(:, :n, 2:) + slope(:, 2:, 2:))
  end function

end program
