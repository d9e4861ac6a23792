! fortran_coprocess CASE: what tests/python/test_fortran_analysis.py asks for by name, on the channel "body".
program coprocess
  use, intrinsic :: iso_fortran_env
  use penstock
  use penstock_coprocessing
  implicit none
  type(penstock_context) :: context
  type(penstock_coprocessor) :: c
  character(len=20) :: word

  call get_command_argument(1, word)
  call context%create()
  select case (word)
  case ('fields');    call fields()
  case ('meshes');    call meshes()
  case ('steering');  call steering()
  case ('errors');    call errors()
  case default;       error stop 'no such case'
  end select
  call context%destroy()

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (.not. holds) error stop 'not so: '//what
  end subroutine

  ! Lent, put, in blocks, with components last and first.
  subroutine fields()
    type(penstock_field) :: T, v, first, parts
    type(penstock_coprocessor_statistics) :: statistics
    real(real64), asynchronous :: halo(0:4, 0:3)
    integer(int16) :: half(3, 1)
    integer :: i, j, cycle
    logical :: wanted
    call c%create(context, 'body', options='every=2')
    call c%set_mesh('grid', penstock_mesh_uniform, shape=[3_int64, 2_int64], spacing=[1d0, 2d0])
    call c%set_mesh('rows', penstock_mesh_uniform, shape=[2, 3], axes='yx')
    call c%field('grid', 'T', penstock_float64, T, units='K', min_max=.true.)
    call c%field('grid', 'v', penstock_float32, v, association=penstock_element, components=2)
    call c%field('rows', 'first', penstock_float32, first, association=penstock_element, components=2, &
                 order=penstock_row)
    call c%field('grid', 'parts', penstock_int16, parts, variable='P')
    do cycle = 0, 3
      halo = -1
      do j = 1, 2
        do i = 1, 3
          halo(i, j) = 100 * cycle + 10 * i + j
        end do
      end do
      call c%request(cycle, 0.5d0 * cycle, wanted)
      call check(wanted .eqv. mod(cycle, 2) == 0, 'every second cycle')
      if (wanted) then
        call check(c%wants(T), 'a field that is wanted')
        call c%put(T, halo(1:3, 1:2), lend=.true.)
        call c%put(v, reshape([1., 2., 3., 4.], [2, 1, 2]))      ! v(element, 1, component)
        call c%put(first, reshape([1., 2., 3., 4.], [2, 2, 1]))  ! v(component, element, 1)
        half(:, 1) = [1_int16, 2_int16, 3_int16]
        call c%put(parts, half(:, 1), start=[1, 1], count=[3, 1])
        half = -half
        call c%put(parts, half, start=[1, 2])
        call c%coprocess()
      end if
    end do
    call c%statistics(statistics)
    call check(statistics%requests == 4 .and. statistics%steps == 2 .and. statistics%skipped_every == 2, 'statistics')
    call c%finalize()
  end subroutine

  ! An unstructured mesh of two blocks, particles, and both as one.
  subroutine meshes()
    type(penstock_field) :: x, corners, mixed, offsets, kinds, p, mass
    real(real64) :: points(3, 5)
    integer :: i
    logical :: wanted
    call c%create(context, 'body')
    call c%set_mesh('solid', penstock_mesh_unstructured, coordinates=['points'], blocks=[ &
                    penstock_mesh_block('quads', 1, 'quad4', 'corners'), &
                    penstock_mesh_block('more', 2, 'mixed', 'mixed', 'offsets', 'kinds')])
    call c%set_mesh('dust', penstock_mesh_particles, coordinates=['px  ', 'y   ', 'long'])
    call c%set_mesh('all', penstock_mesh_multiblock, coordinates=['solid', 'dust '])
    call c%set_mesh('tree', penstock_mesh_amr, shape=[8, 8, 8], levels='l', indices='i', splits='firsts', depth=4)
    call c%structure('solid', 'points', penstock_float64, x, order=penstock_row)
    call c%structure('solid', 'corners', penstock_int32, corners, order=penstock_row)
    call c%structure('solid', 'mixed', penstock_int32, mixed)
    call c%structure('solid', 'offsets', penstock_int32, offsets)
    call c%structure('solid', 'kinds', penstock_uint8, kinds)
    call c%structure('dust', 'long', penstock_float64, p)
    call c%field('dust', 'mass', penstock_float64, mass, association=penstock_element)
    points = reshape([(real(i, real64), i = 0, 14)], [3, 5])
    call c%request(7, 0.25d0, wanted)
    call check(wanted, 'wanted')
    call c%put(x, points)
    call c%put(corners, reshape([0, 1, 2, 3], [4, 1]))
    call c%put(mixed, [2, 3, 4])
    call c%put(offsets, [0, 3])
    call c%put(kinds, [5_int8])
    call c%put(p, points(1, :))
    call c%put(mass, [1d0, 2d0, 3d0, 4d0, 5d0])
    call c%coprocess()
    call c%finalize()
  end subroutine

  ! Parameters, until an analysis has changed them.
  subroutine steering()
    type(penstock_field) :: T
    real(real64) :: F
    integer :: n, cycle
    integer(int64) :: wide
    logical :: on, wanted
    character(len=8) :: name
    call c%create(context, 'body', options='rendezvous_readers=0,wait=drop')
    call c%set_mesh('grid', penstock_mesh_uniform, shape=[1])
    call c%field('grid', 'T', penstock_float64, T)
    call c%declare('F', 0.25, least=0., greatest=1d0)
    call c%declare('n', 5, least=1, greatest=9)
    call c%declare('wide', 5_int64)
    call c%declare('on', .false.)
    call c%declare('name', 'red ')
    call c%value('F', F)
    call c%value('n', n)
    call c%value('name', name)
    call check(F == 0.25d0 .and. n == 5 .and. name == 'red', 'as declared')
    on = .false.
    cycle = 0
    do while (.not. on)
      call c%request(cycle, 0d0, wanted)
      if (wanted) then
        call c%abandon()
      end if
      call c%value('on', on)
      cycle = cycle + 1
    end do
    call c%value('F', F)
    call c%value('n', n)
    call c%value('wide', wide)
    call c%value('name', name)
    call check(F == 0.5d0 .and. n == 7 .and. wide == 2_int64**40 .and. name == 'blue', 'as the analysis says')
    call c%finalize()
  end subroutine

  ! What goes wrong is in stat and errmsg, which is printed.
  subroutine errors()
    type(penstock_field) :: T, none
    character(len=300) :: message
    character(len=2) :: narrow
    integer :: stat, n
    logical :: wanted
    call c%request(0, 0d0, wanted, stat=stat, errmsg=message)
    call report('not open', stat, message)
    call c%create(context, 'body', options='evry=2', stat=stat, errmsg=message)
    call report('option', stat, message)
    call c%create(context, 'body', options='rendezvous_readers=0,wait=drop')
    call c%set_mesh('grid', 99, stat=stat, errmsg=message)
    call report('type of mesh', stat, message)
    call c%set_mesh('grid', penstock_mesh_uniform, shape=[2., 3.], stat=stat, errmsg=message)
    call report('shape', stat, message)
    call c%set_mesh('grid', penstock_mesh_uniform, shape=[2], spacing=[1d0, 1d0, 1d0, 1d0], stat=stat, errmsg=message)
    call report('spacing', stat, message)
    call c%set_mesh('grid', penstock_mesh_unstructured, coordinates=['x'], &
                    blocks=[penstock_mesh_block('b', 1, 'hex9')], stat=stat, errmsg=message)
    call report('topology', stat, message)
    call c%set_mesh('grid', penstock_mesh_uniform, shape=[2, 3])
    call c%field('gird', 'T', penstock_float64, T, stat=stat, errmsg=message)
    call report('no mesh', stat, message)
    call c%field('grid', 'T', penstock_float64, T, components=0, stat=stat, errmsg=message)
    call report('components', stat, message)
    call c%field('grid', 'T', penstock_float64, T)
    call c%declare('n', 5, least=1., stat=stat, errmsg=message)
    call report('bounds', stat, message)
    call c%declare('name', 'green')
    call c%value('name', n, stat=stat, errmsg=message)
    call report('another type', stat, message)
    call c%value('name', narrow, stat=stat, errmsg=message)
    call report('narrow', stat, message)
    call c%put(T, [1d0], stat=stat, errmsg=message)
    call report('no step', stat, message)
    call c%request(0, 0d0, wanted)
    call check(wanted, 'wanted')
    call c%put(none, [1d0], stat=stat, errmsg=message)
    call report('no field', stat, message)
    call c%put(T, [1., 2.], stat=stat, errmsg=message)
    call report('type', stat, message)
    call c%put(T, 1d0, stat=stat, errmsg=message)
    call report('scalar', stat, message)
    call c%put(T, reshape([1d0, 2d0, 3d0], [3, 1]), stat=stat, errmsg=message)
    call report('outside', stat, message)
    call c%lose()
    call c%coprocess(stat=stat, errmsg=message)
    call report('lost', stat, message)
  end subroutine

  subroutine report(what, stat, message)
    character(len=*), intent(in) :: what, message
    integer, intent(in) :: stat
    print '(a,a,i0,a,a)', what, '|', stat, '|', trim(message)
  end subroutine

end program
