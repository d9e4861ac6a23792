! fortran_regions CASE: what tests/python/test_fortran_analysis.py asks for by name.
program regions
  use, intrinsic :: iso_fortran_env
  use penstock
  use penstock_regions
  implicit none
  type(penstock_context) :: context
  character(len=20) :: word

  call get_command_argument(1, word)
  call context%create()
  select case (word)
  case ('write');   call write_bar()
  case ('read');    call read_bar()
  case ('errors');  call errors()
  case default;     error stop 'no such case'
  end select
  call context%destroy()

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (.not. holds) error stop 'not so: '//what
  end subroutine

  ! Two elements in a row: numbers of entities are 1 for the region, 2 nodes, 3 bar, 4 end, 5 side.
  subroutine describe(model)
    type(penstock_model), intent(inout) :: model
    integer :: nodes, bar, end, side, field
    call model%create('a bar', 2)
    call model%add_entity(penstock_region, 'region', 0, 1)
    call model%add_entity(penstock_node_block, 'nodes', 1, 6, nodes)
    call model%add_entity(penstock_element_block, 'bar', 10, 2, bar, topology='quad4')
    call model%add_entity(penstock_node_set, 'end', 100, 2, end)
    call model%add_entity(penstock_side_set, 'side', 200, 1, side)
    call model%add_field(1, 'energy', penstock_float64, penstock_role_reduction)
    call model%add_field(nodes, 'coordinates', penstock_float64, penstock_role_mesh, storage='vector_2d')
    call model%add_field(nodes, 'T', penstock_float64, penstock_role_transient, field)
    call check(nodes == 2 .and. side == 5 .and. field == 2, 'numbers count from 1')
    call model%add_field(nodes, 'velocity', penstock_float64, penstock_role_transient, storage='vector_2d')
    call model%add_field(bar, 'connectivity', penstock_int32, penstock_role_mesh, storage='[4]')
    call model%add_field(end, 'members', penstock_int32, penstock_role_mesh)
    call model%add_field(end, 'distribution_factors', penstock_float64, penstock_role_mesh)
    call model%add_field(side, 'element_side', penstock_int32, penstock_role_mesh, storage='[2]')
    call model%add_field(side, 'distribution_factors', penstock_float64, penstock_role_mesh, count=2)
  end subroutine

  subroutine write_bar()
    type(penstock_model) :: model
    type(penstock_region_sink) :: sink
    real(real64) :: x(2, 3, 2), padded(0:3, 3, 0:2)
    integer :: corners(4, 2), i, j, state
    call describe(model)
    call sink%create(context, 'bar')
    call sink%define(model)
    call model%destroy()
    do j = 1, 2
      do i = 1, 3
        x(:, i, j) = [i, 10 * j]
      end do
    end do
    corners(:, 1) = [0, 1, 4, 3]
    corners(:, 2) = [1, 2, 5, 4]
    call sink%write(2, 1, x)
    call sink%write(3, 1, corners)
    call sink%write(4, 1, [0, 3])
    call sink%write(4, 2, [1d0, 0.5d0])
    call sink%write(5, 1, [1, 2])
    call sink%write(5, 2, [3d0, 4d0])
    do state = 0, 2
      padded = -1
      padded(1:2, :, 1:2) = x + 100 * state
      call sink%begin_state(0.5d0 * state)
      call sink%write(2, 2, [(10d0 * state + i, i = 1, 6)])
      if (state == 1) then
        call sink%abandon_state()
        cycle
      end if
      call sink%write(2, 3, padded(1:2, :, 1:2))  ! not contiguous
      call sink%write(1, 1, 7d0 + state)
      call sink%end_state()
    end do
    call sink%close()
  end subroutine

  ! What Python has written, of two parts: the model, the parts, both as one.
  subroutine read_bar()
    type(penstock_region_source) :: source, joined
    type(penstock_model) :: model
    character(len=:), allocatable :: name, text
    real(real64), allocatable :: T(:)
    real(real64) :: time, x(2, 3), wide(2, 0:7)
    integer(int64) :: id, count, rows, corners(4, 1)
    integer :: outcome, nodes, bar, number, fields, components, dtype, role, type, part, first, last
    call source%open(context, 'bar')
    call check(source%parts() == 2, 'two parts')
    do part = 1, 2
      call source%model(part, model)
      call model%inquire(text, dimensions=number, entities=fields)
      call check(text == 'two parts' .and. number == 2 .and. fields == 3, 'the model')
      nodes = model%find_entity(penstock_node_block, 'nodes')
      bar = model%find_entity(penstock_element_block, 'bar')
      call model%inquire_entity(bar, type=type, name=name, id=id, count=count, topology=text, fields=fields)
      call check(type == penstock_element_block .and. name == 'bar' .and. id == 10 .and. count == 1, 'an entity')
      call check(text == 'quad4' .and. fields == 1, 'its topology and fields')
      first = model%find_field(nodes, 'coordinates')
      last = model%find_field(nodes, 'T')
      call model%inquire_field(nodes, first, name, dtype, text, role, rows, components)
      call check(name == 'coordinates' .and. dtype == penstock_float64 .and. text == 'vector_2d', 'a field')
      call check(role == penstock_role_mesh .and. rows == 4 .and. components == 2, 'its role and size')
      call source%read(part, bar, 1, corners)
      call check(all(corners(:, 1) == [0, 1, 3, 2]), 'connectivity')
      call source%read(part, nodes, first, x, first=2)
      call check(all(x(1, :) == part + [1, 0, 1] - 1) .and. all(x(2, :) == [0, 1, 1]), 'some rows')
      wide = -1
      call source%read(part, nodes, first, wide(:, 0:7:2))
      call check(all(wide(1, 0:7:2) == part + [0, 1, 0, 1] - 1) .and. all(wide(:, 1:7:2) == -1), 'a section')
    end do
    call source%join(joined)
    call check(joined%parts() == 1, 'one part')
    call joined%model(1, model)
    call model%inquire_entity(nodes, count=count)
    call check(count == 6, 'nodes of both parts')
    allocate(T(count))
    do number = 0, 1
      call joined%next_state(outcome, time, timeout_ms=30000)
      call check(outcome == penstock_state_ready .and. time == 0.25d0 * number, 'a state')
      call joined%read(1, nodes, last, T)
      call check(all(T == number), 'its values')
    end do
    call joined%next_state(outcome, timeout_ms=30000)
    call check(outcome == penstock_state_end, 'the end')
    if (command_argument_count() > 1) then  ! a file
      call joined%times(T)
      call check(size(T) == 2 .and. T(2) == 0.25d0, 'times')
      call joined%seek(2)
      call joined%next_state(outcome, time)
      call check(outcome == penstock_state_ready .and. time == 0.25d0, 'the state that was sought')
    end if
    call model%destroy()
    call joined%destroy()
    call source%destroy()
  end subroutine

  ! What goes wrong is in stat and errmsg, which is printed.
  subroutine errors()
    type(penstock_model) :: model, empty
    type(penstock_region_sink) :: sink
    type(penstock_region_source) :: source
    character(len=300) :: message
    real(real64) :: x(2, 3, 2)
    real(real64), allocatable :: never(:)
    integer :: stat, number
    x = 0
    call empty%add_entity(penstock_region, 'region', 0, 1, stat=stat, errmsg=message)
    call report('no model', stat, message)
    call model%create('', 4, stat=stat, errmsg=message)
    call report('dimensions', stat, message)
    call describe(model)
    call model%add_entity(penstock_element_block, 'more', 11, -1, stat=stat, errmsg=message)
    call report('count', stat, message)
    call model%add_field(0, 'f', penstock_float64, penstock_role_transient, stat=stat, errmsg=message)
    call report('entity 0', stat, message)
    call model%add_field(2, 'f', penstock_float64, penstock_role_transient, storage='vektor', stat=stat, errmsg=message)
    call report('storage', stat, message)
    number = model%find_entity(penstock_node_set, 'and', stat=stat, errmsg=message)
    call report('no entity', stat, message)
    call sink%define(model, stat=stat, errmsg=message)
    call report('no sink', stat, message)
    call source%seek(1, stat=stat, errmsg=message)
    call report('no source', stat, message)
    call sink%create(context, 'bar', options='databse=null', stat=stat, errmsg=message)
    call report('option', stat, message)
    call sink%create(context, 'bar', options='null')
    call sink%write(2, 1, x, stat=stat, errmsg=message)
    call report('no define', stat, message)
    call sink%define(model)
    call sink%write(2, 9, x, stat=stat, errmsg=message)
    call report('no field', stat, message)
    call sink%write(2, 1, real(x), stat=stat, errmsg=message)
    call report('type', stat, message)
    call sink%write(2, 1, reshape(x, [6, 2]), stat=stat, errmsg=message)
    call report('components last', stat, message)
    call sink%write(2, 1, x(:, :2, :), stat=stat, errmsg=message)
    call report('rows', stat, message)
    call sink%write(2, 1, never, stat=stat, errmsg=message)
    call report('never allocated', stat, message)
    call sink%write(2, 1, x)
    call sink%begin_state(0d0, stat=stat, errmsg=message)
    call report('fields not written', stat, message)
    call sink%destroy()
    call model%destroy()
  end subroutine

  subroutine report(what, stat, message)
    character(len=*), intent(in) :: what, message
    integer, intent(in) :: stat
    print '(a,a,i0,a,a)', what, '|', stat, '|', trim(message)
  end subroutine

end program
