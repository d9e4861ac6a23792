! fortran_cases CASE: what tests/python/test_fortran.py asks for by name.
program cases
  use, intrinsic :: iso_fortran_env
  use penstock
  implicit none
  type(penstock_context) :: context
  character(len=20) :: word
  integer, parameter :: long_ms = 30000

  call get_command_argument(1, word)
  call context%create()
  select case (word)
  case ('sections');   call sections()
  case ('kinds');      call kinds()
  case ('select');     call selections()
  case ('outcomes');   call outcomes()
  case ('lost');       call lost()
  case ('errors');     call errors()
  case ('stop');       call stop_by_error()
  case ('reshape');    call reshape()
  case ('attributes'); call attributes()
  case ('seek');       call seek()
  case default;        error stop 'no such case'
  end select
  call context%destroy()

contains

  subroutine check(holds, what)
    logical, intent(in) :: holds
    character(len=*), intent(in) :: what
    if (.not. holds) error stop 'not so: '//what
  end subroutine

  ! a(i, j) = 10 i + j
  function matrix(rows, columns) result(a)
    integer, intent(in) :: rows, columns
    real(real64) :: a(rows, columns)
    integer :: i, j
    do j = 1, columns
      do i = 1, rows
        a(i, j) = 10 * i + j
      end do
    end do
  end function

  ! Puts sections with strides of any sign, and gets into one.
  subroutine sections()
    type(penstock_writer) :: writer
    type(penstock_reader) :: reader
    real(real64) :: a(6, 5)
    real(real64), asynchronous :: b(6, 5), c(5)
    logical :: masks(4, 4)
    integer :: outcome
    a = matrix(6, 5)
    masks = a(:4, :4) > 30
    call context%create_stream(writer, 'sections')
    call context%open_stream(reader, 'matrix')
    call writer%begin_step()
    call writer%put('odd_rows', a(1:6:2, :))
    call writer%put('reversed', a(6:1:-1, 5:2:-1))
    call writer%put('row', a(3, :))
    call writer%put('expression', 2 * a)
    call writer%put('masks', masks(::2, 4:1:-1))
    call writer%put('lent', a(2:5, 2:4), lend=.true.)
    call writer%put_attribute('row', a(2, ::2))
    call writer%end_step()
    call reader%begin_step(outcome)
    b = -1
    call reader%get('M', b(2:6:2, 2:5), start=[1, 1], asynchronous=.true.)  ! M is 6 x 5
    call reader%get('M', c, start=[4, 1], count=[1, 5], asynchronous=.true.)
    call reader%wait(long_ms)
    call check(all(b(2:6:2, 2:5) == a(:3, :4)), 'a box into a section')
    call check(all(b(1:5:2, :) == -1) .and. all(b(:, 1) == -1), 'nothing else was written')
    call check(all(c == a(4, :)), 'a row')
    masks = .true.
    call reader%get('mask', masks(::2, 4:1:-1))
    call check(all(masks(::2, 4) .eqv. [.true., .false.]) .and. all(masks(::2, 1) .eqv. [.false., .true.]), 'masks')
    call check(all(masks(2::2, :)), 'other masks')
    call reader%end_step()
    call reader%close()
    call writer%close()
  end subroutine

  ! Local arrays, local values, and what define is for.
  subroutine kinds()
    type(penstock_writer) :: writer
    real(real64) :: plane(2, 3)
    plane = matrix(2, 3)
    call context%create_stream(writer, 'kinds')
    call writer%define('bytes', penstock_uint8, shape=[3])
    call writer%define('range', penstock_float64, shape=[2_int64, 3_int64], min_max=.true.)
    call writer%define('host', penstock_string, kind=penstock_local_value)
    call writer%begin_step()
    call check(writer%step_number() == 0, 'the first step')
    call check(.not. writer%step_dropped(), 'a step that is not dropped')
    call writer%put('bytes', [-1_int8, 0_int8, 127_int8])
    call writer%put('range', plane)
    call writer%put('host', 'a', local=.true.)
    call writer%put('seconds', 1.5, local=.true.)
    call writer%put('time', 2.5)
    call writer%put('particles', [1, 2, 3], local=.true.)
    call writer%put('particles', [4], local=.true.)
    call writer%put('box', plane, start=[1, 1, 2], shape=[2, 3, 2])
    call writer%put('box', plane(1, :), start=[2_int64, 1_int64, 1_int64], count=[1, 3, 1])
    call writer%put('one', 7, start=[4], shape=[5])
    call writer%put('empty', plane(1:0, :))
    call writer%end_step()
    call writer%close()
  end subroutine

  ! Selections, and what is known of variables, of the stream "all".
  subroutine selections()
    type(penstock_reader) :: reader
    type(penstock_statistics) :: statistics
    character(len=:), allocatable :: names(:)
    integer(int64), allocatable :: shape(:), start(:), count(:)
    integer(int64) :: blocks
    real(real64) :: a(6, 5), box(2, 3), strided(3, 2), points(3), plane(2, 2)
    integer :: outcome, dtype, kind, order, rank, elements, one(2), last(1), bits(2)
    logical :: there, is_array
    integer(int8) :: unsigned(2)
    a = matrix(6, 5)
    call context%open_stream(reader, 'all')
    call reader%begin_step(outcome, timeout_ms=penstock_forever)
    call check(outcome == penstock_ready, 'a step')
    call check(reader%step_number() == 0, 'its number')
    call reader%variables(names)
    call check(size(names) == 4 .and. any(names == 'M') .and. any(names == 'particles'), 'names of variables')
    call reader%inquire('M', exists=there, dtype=dtype, kind=kind, order=order, shape=shape, blocks=blocks)
    call check(there .and. dtype == penstock_float64 .and. kind == penstock_global_array, 'dtype and kind')
    call check(order == penstock_row .and. all(shape == [6, 5]) .and. blocks == 2, 'order, shape and blocks')
    call reader%inquire('m', exists=there)
    call check(.not. there, 'what is not there')
    call reader%inquire_block('M', 2, start, count, rank)
    call check(all(start == [4, 1]) .and. all(count == [3, 5]) .and. rank == 0, 'the second block')
    call reader%get('M', box, start=[5, 2])
    call check(all(box == a(5:6, 2:4)), 'a box')
    call reader%get('M', strided, start=[2, 1], stride=[2, 4])
    call check(all(strided == a(2:6:2, 1:5:4)), 'every second row of every fourth column')
    call reader%get('M', points, points=reshape_points([1, 1, 6, 5, 2, 4]))
    call check(all(points == [a(1, 1), a(6, 5), a(2, 4)]), 'points')
    call reader%get('V', plane, start=[1, 2, 1], count=[2, 1, 2])
    call check(all(plane == transpose(matrix(2, 2))), 'a plane of a box, without the dimension of one element')
    call reader%get('particles', one, block=1)
    call reader%get('particles', last, block=2)
    call check(all(one == [1, 2]) .and. last(1) == 3, 'blocks')
    call reader%get('bytes', unsigned)
    bits = iand(int(unsigned), 255)
    call check(all(bits == [255, 1]), 'unsigned integers')
    call reader%attributes(names)
    call check(size(names) == 1 .and. names(1) == 'M/units', 'names of attributes')
    call reader%inquire_attribute('M/units', dtype=dtype, count=elements, is_array=is_array)
    call check(dtype == penstock_string .and. elements == 2 .and. is_array, 'an attribute')
    call reader%inquire_attribute('none', exists=there)
    call check(.not. there, 'an attribute that is not there')
    call reader%statistics(statistics)
    call check(statistics%steps >= 0 .and. statistics%bytes > 0, 'statistics')
    call reader%end_step()
    call reader%close()
  end subroutine

  function reshape_points(values) result(points)
    integer, intent(in) :: values(6)
    integer :: points(2, 3)
    points(:, 1) = values(1:2)
    points(:, 2) = values(3:4)
    points(:, 3) = values(5:6)
  end function

  ! No step yet, a step, the end. A writer's deadline.
  subroutine outcomes()
    type(penstock_writer) :: writer
    type(penstock_reader) :: reader
    integer :: outcome, value, no_pool
    logical :: begun
    call context%create_stream(writer, 'pair', options='queue_steps=1')
    call context%open_stream(reader, 'pair')
    call reader%begin_step(outcome, timeout_ms=0)
    call check(outcome == penstock_not_ready, 'no step yet')
    call writer%begin_step(begun=begun)
    call check(begun, 'begun')
    call writer%put('value', 1)
    call writer%abandon_step()
    call writer%begin_step()
    call writer%put('value', 2)
    call writer%end_step()
    call writer%begin_step(timeout_ms=0, begun=begun)
    call get_environment_variable('PENSTOCK_DIRECTORY_SERVICE', status=no_pool)
    call check(.not. begun .or. no_pool == 0, 'there is no room')  ! unless a pool has taken the step already
    if (begun) call writer%abandon_step()
    call reader%begin_step(outcome)
    call check(outcome == penstock_ready, 'a step')
    call reader%get('value', value)
    call check(value == 2, 'its value')
    call reader%end_step()
    call writer%close()
    call reader%begin_step(outcome)
    call check(outcome == penstock_end_of_stream, 'the end')
    call reader%close()
  end subroutine

  subroutine lost()
    type(penstock_writer) :: writer
    type(penstock_reader) :: reader
    character(len=200) :: message
    integer :: outcome
    call context%create_stream(writer, 'pair')
    call context%open_stream(reader, 'pair')
    call writer%begin_step()
    call writer%lose()
    call reader%begin_step(outcome, errmsg=message)
    call check(outcome == penstock_writer_lost .and. index(message, 'pair') > 0, 'the writer is lost: '//trim(message))
    call reader%close()
  end subroutine

  ! What goes wrong is in stat and errmsg, which is printed.
  subroutine errors()
    type(penstock_writer) :: writer
    type(penstock_reader) :: reader
    character(len=200) :: message
    real(real64) :: a(3, 2), deep(1, 1, 1, 1, 1, 1, 1, 1, 1, 1)
    integer :: stat, i, outcome
    integer, parameter :: bad(2) = [1, 0]
    real(real64), allocatable, save :: never(:, :)
    real(real64), allocatable :: freed(:)
    character(len=2) :: narrow
    type(penstock_context) :: no_context
    a = 0
    deep = 0
    message = 'unchanged'
    call writer%put('a', a, stat=stat, errmsg=message)
    call report('not open', stat, message)
    call writer%begin_step(stat=stat, errmsg=message)
    call report('no writer', stat, message)
    call reader%get('a', a, stat=stat, errmsg=message)
    call report('no reader', stat, message)
    call no_context%create_stream(writer, 'pair', stat=stat, errmsg=message)
    call report('no context', stat, message)
    call context%open_stream(reader, 'nobody', options='open_timeout_ms=0', stat=stat, errmsg=message)
    call report('nobody', stat, message)
    call context%create_stream(writer, 'pair', options='no_such_option=1', stat=stat, errmsg=message)
    call report('option', stat, message)
    call context%create_stream(writer, 'pair')
    call context%open_stream(reader, 'pair')
    call writer%put('a', a, stat=stat, errmsg=message)
    call report('no step', stat, message)
    call writer%begin_step()
    message = 'unchanged'
    call writer%put('a', a, stat=stat, errmsg=message)
    call report('none', stat, message)
    call writer%put('a', real(a), stat=stat, errmsg=message)
    call report('type', stat, message)
    call writer%put('a', a(1, 1), stat=stat, errmsg=message)
    call report('kind', stat, message)
    call writer%put('b', a, start=[1, 1], stat=stat, errmsg=message)
    call report('part', stat, message)
    call writer%put('a', a, start=bad, stat=stat, errmsg=message)
    call report('start', stat, message)
    call writer%put('a', a, start=[2, 1], stat=stat, errmsg=message)
    call report('outside', stat, message)
    call writer%put('a', a, start=[1], stat=stat, errmsg=message)
    call report('rank', stat, message)
    call writer%put('a', a, start=[1, 1, 1], count=[1, 2], stat=stat, errmsg=message)
    call report('vectors', stat, message)
    call writer%put('a', a, start=[1., 1.], stat=stat, errmsg=message)
    call report('reals', stat, message)
    call writer%put('c', context, stat=stat, errmsg=message)
    call report('derived', stat, message)
    call writer%put('d', deep, stat=stat, errmsg=message)
    call report('deep', stat, message)
    call writer%put('c', ['a', 'b'], stat=stat, errmsg=message)
    call report('texts', stat, message)
    call writer%put_attribute('m', a, stat=stat, errmsg=message)
    call report('matrix', stat, message)
    call writer%put('text', 'ab'//achar(0)//'c', stat=stat, errmsg=message)
    call report('NUL in a text', stat, message)
    call writer%put('a'//achar(0)//'b', a, stat=stat, errmsg=message)
    call report('NUL in a name', stat, message)
    call writer%put_attribute('n', ['a '//achar(0), achar(0)//' b'], stat=stat, errmsg=message)
    call report('NUL in a vector', stat, message)
    call context%open_stream(reader, 'pair', options='shm'//achar(0)//',x', stat=stat, errmsg=message)
    call report('NUL in options', stat, message)
    allocate(freed(4))
    deallocate(freed)
    call writer%put('never', never, stat=stat, errmsg=message)
    call report('never allocated', stat, message)
    call writer%put('freed', freed, start=[1], shape=[4], stat=stat, errmsg=message)
    call report('deallocated', stat, message)
    allocate(freed(0))
    call writer%put('nothing', freed)
    call writer%put('no numbers', [real ::])
    call writer%put('text', 'abc'//achar(0)//' '//achar(0))
    call writer%put_attribute('n', [1, 2])
    call writer%end_step()
    call reader%begin_step(outcome)
    call reader%get('a', i, stat=stat, errmsg=message)
    call report('got type', stat, message)
    call reader%get('a', a(:, 1), stat=stat, errmsg=message)
    call report('got shape', stat, message)
    call reader%get('text', narrow, stat=stat, errmsg=message)
    call report('narrow', stat, message)
    call reader%get('a', never, stat=stat, errmsg=message)
    call report('got never allocated', stat, message)
    call reader%get('nothing', freed)
    call reader%get('a', a, block=0, stat=stat, errmsg=message)
    call report('block 0', stat, message)
    call reader%inquire_block('a', -1, stat=stat, errmsg=message)
    call report('block -1', stat, message)
    call reader%get('a', a, block=1, start=[1, 1], stat=stat, errmsg=message)
    call report('block and start', stat, message)
    call reader%get('a', a(:, 1), points=reshape_points([1, 1, 1, 1, 1, 1]), stride=[1, 1], stat=stat, errmsg=message)
    call report('points and stride', stat, message)
    call reader%get('a', a, block=1)
    call reader%get('a'//achar(0)//'b', a, stat=stat, errmsg=message)
    call report('got NUL', stat, message)
    narrow = reader%text('text'//achar(0)//'s', stat=stat, errmsg=message)
    call report('NUL for text', stat, message)
    call reader%inquire('a'//achar(0)//'b', stat=stat, errmsg=message)
    call report('NUL inquired', stat, message)
    call check(reader%text('text') == 'abc', 'what C has of a text with NULs at its end')
    call reader%get('b', a, stat=stat, errmsg=message)
    call report('not found', stat, message)
    call reader%attribute('n', i, stat=stat, errmsg=message)
    call report('size', stat, message)
    narrow = reader%attribute_text('n', stat=stat, errmsg=message)
    call report('no text', stat, message)
    call reader%end_step()
    call reader%close()
    call writer%close()
  end subroutine

  subroutine report(what, stat, message)
    character(len=*), intent(in) :: what, message
    integer, intent(in) :: stat
    print '(a,a,i0,a,a)', what, '|', stat, '|', trim(message)
  end subroutine

  ! Attributes change and grow, stay until they are put again, and are not there before.
  subroutine attributes()
    type(penstock_writer) :: writer
    type(penstock_reader) :: reader
    character(len=6) :: words(2)
    real(real64) :: time
    integer(int16) :: sevens(3)
    integer :: step, outcome, elements
    logical :: there, is_array
    call context%create_stream(writer, 'pair', options='queue_steps=8')
    call context%open_stream(reader, 'pair')
    call writer%put_attribute('program', 'heat')
    call writer%put_attribute('dims', ['z     ', 'a "b" '])
    sevens = 7_int16
    do step = 0, 3
      call writer%begin_step()
      call writer%put('T', [1, 2])
      call writer%put_attribute('time', 0.1d0 * step)
      call writer%put_attribute('growing', sevens(:step))
      if (step == 1) call writer%put_attribute('T/units', 'K')
      call writer%end_step()
    end do
    do step = 0, 3
      call reader%begin_step(outcome)
      call check(outcome == penstock_ready, 'a step')
      call check(reader%attribute_text('program') == 'heat', 'an attribute of all steps')
      call reader%attribute('dims', words)
      call check(words(1) == 'z' .and. words(2) == 'a "b"', 'a vector of texts')
      call reader%attribute('time', time)
      call check(time == 0.1d0 * step, 'one that changes')
      call reader%inquire_attribute('growing', count=elements, is_array=is_array)
      call check(elements == step .and. is_array, 'one that grows')
      sevens = 0
      call reader%attribute('growing', sevens(:step))
      call check(all(sevens(:step) == 7) .and. all(sevens(step + 1:) == 0), 'its values')
      call reader%inquire_attribute('T/units', exists=there)
      call check(there .eqv. step > 0, 'one that comes later')
      sevens = 7_int16
      call reader%end_step()
    end do
    call reader%close()
    call writer%close()
  end subroutine

  ! Of a stream that keeps five steps.
  subroutine seek()
    type(penstock_reader) :: reader
    integer(int64), allocatable :: numbers(:)
    integer :: outcome, value, step
    call context%open_stream(reader, 'kept')
    call reader%steps(numbers)
    call check(all(numbers == [0, 1, 2, 3, 4]), 'the steps that are kept')
    call reader%seek(-1, stat=outcome)
    call check(outcome == penstock_err_invalid_argument, 'no step is less than 0')
    call reader%seek(numbers(5))
    do step = 3, 1, -2
      call reader%seek(step)
      call reader%begin_step(outcome)
      call check(outcome == penstock_ready, 'a step')
      call check(reader%step_number() == step, 'the step that was sought')
      call reader%get('value', value)
      call check(value == 10 * step, 'its value')
      call reader%end_step()
    end do
    call reader%close()
  end subroutine

  subroutine stop_by_error()
    type(penstock_writer) :: writer
    call context%create_stream(writer, 'pair', options='rendezvous_readers=0')
    call writer%begin_step()
    call writer%put('a', [1, 2], start=[1])
  end subroutine

  ! An array that grows, and what abandoning a step does to its shape.
  subroutine reshape()
    type(penstock_writer) :: writer
    integer :: values(8), step, stat
    values = [1, 2, 3, 4, 5, 6, 7, 8]
    call context%create_stream(writer, 'grows')
    do step = 1, 3
      call writer%begin_step()
      call writer%put('v', values(:2 * step))
      call writer%end_step()
    end do
    call writer%begin_step()
    call writer%put('v', values)
    call writer%abandon_step()
    call writer%begin_step()
    call writer%put('v', values(:1), start=[1], stat=stat)
    call check(stat == penstock_err_invalid_argument, 'the shape is not known any more')
    call writer%put('v', values(:1), start=[1], shape=[3])
    call writer%put('v', values(2:3), start=[2])
    call writer%end_step()
    call writer%close()
  end subroutine

end program
