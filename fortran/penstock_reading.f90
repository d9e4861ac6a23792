! Readers, for the module penstock, which says how all of it is used.
module penstock_reading
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64
  use penstock_calls
  implicit none
  private
  public :: penstock_reader

  type :: penstock_reader
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: begin_step => reader_begin_step
    procedure :: step_number => reader_step_number
    procedure :: seek
    procedure :: steps
    procedure :: variables
    procedure :: inquire => inquire_variable
    procedure :: inquire_block
    procedure :: get
    procedure :: text
    procedure :: wait
    procedure :: attributes
    procedure :: inquire_attribute
    procedure :: attribute
    procedure :: attribute_text
    procedure :: end_step => reader_end_step
    procedure :: close => reader_close
    procedure :: statistics => reader_statistics
  end type

contains

  ! Waits for the next step. penstock_ready opens it. With penstock_writer_lost, errmsg names what is lost.
  subroutine reader_begin_step(self, outcome, timeout_ms, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    integer, intent(out) :: outcome
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    outcome = penstock_not_ready
    code = c_reader_begin_step(self%handle, c_timeout(timeout_ms), outcome, error)
    if (present(errmsg) .and. outcome == penstock_writer_lost) errmsg = message_of(error)
    call finish(error, stat, errmsg)
  end subroutine

  ! The writer's number; gaps follow drops and late joins.
  integer(int64) function reader_step_number(self, stat, errmsg) result(number)
    class(penstock_reader), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    number = -1
    code = c_reader_step_number(self%handle, number, error)
    call finish(error, stat, errmsg)
  end function

  ! Where steps are kept, with the engines pool, file and space: the next begin_step gives the first kept step with at
  ! least this number, of any kind of integer. Between steps; all ranks seek alike.
  subroutine seek(self, step, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    class(*), intent(in) :: step
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int64_t) :: number
    integer(c_int) :: code
    number = -1
    select type (step)
    type is (integer(int32))
      number = step
    type is (integer(int64))
      number = step
    end select
    if (number < 0) then
      code = refuse(error, 'step is an integer from 0 on')
    else
      code = c_reader_seek(self%handle, number, error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! The numbers of the steps that are kept now, ascending.
  subroutine steps(self, numbers, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    integer(int64), allocatable, intent(out) :: numbers(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_size_t) :: count
    count = 0
    do
      allocate(numbers(count))
      if (c_reader_steps(self%handle, size(numbers, kind=c_size_t), numbers, count, error) /= penstock_ok) exit
      if (count <= size(numbers)) exit
      deallocate(numbers)
    end do
    if (count < size(numbers)) numbers = numbers(:count)
    call finish(error, stat, errmsg)
  end subroutine

  ! The names of the variables in the step.
  subroutine variables(self, names, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=:), allocatable, intent(out) :: names(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_variable) :: found
    type(c_ptr), allocatable :: pointers(:)
    integer(c_int64_t) :: count, i
    count = 0
    if (c_variable_count(self%handle, count, error) == penstock_ok) then
      allocate(pointers(count))
      do i = 1, count
        if (c_variable_at(self%handle, i - 1, found, error) /= penstock_ok) exit
        pointers(i) = found%name
      end do
      if (error%code == penstock_ok) names = texts_of(pointers)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! What is known of a variable. With exists, one that is not there is no error. shape: of global arrays; of local
  ! values the number of blocks. order: the writer's.
  subroutine inquire_variable(self, name, exists, dtype, kind, order, shape, blocks, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    logical, intent(out), optional :: exists
    integer, intent(out), optional :: dtype, kind, order
    integer(int64), allocatable, intent(out), optional :: shape(:)
    integer(int64), intent(out), optional :: blocks
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_variable) :: found
    if (found_variable(self, name, found, error)) then
      if (present(dtype)) dtype = found%dtype
      if (present(kind)) kind = found%kind
      if (present(order)) order = found%order
      if (present(shape)) shape = found%shape(:found%ndims)
      if (present(blocks)) blocks = found%blocks
    end if
    if (present(exists)) call answer(error, exists)
    call finish(error, stat, errmsg)
  end subroutine

  ! Where a block of a variable lies, and who put it. Blocks count from 1, by writer rank, then by order of put.
  subroutine inquire_block(self, name, block, start, count, writer_rank, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: block
    integer(int64), allocatable, intent(out), optional :: start(:), count(:)
    integer, intent(out), optional :: writer_rank
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_variable) :: variable
    type(c_block) :: found
    integer(c_size_t) :: written
    integer(c_int) :: code
    written = 0
    call check_selection(name, block, .false., .false., error)
    if (error%code == penstock_ok) then
      if (found_variable(self, name, variable, error)) then
        code = c_blocks(self%handle, variable%id, int(block, c_int64_t) - 1, 1_c_size_t, found, written, error)
        if (code == penstock_ok .and. written == 0) code = refuse(error, "'"//trim(name)//"' has no such block")
      end if
    end if
    if (error%code == penstock_ok) then
      if (present(start)) start = found%start(:found%ndims) + 1
      if (present(count)) count = found%count(:found%ndims)
      if (present(writer_rank)) writer_rank = found%writer_rank
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! Reads a value or a part of an array into values, which has the variable's type:
  !
  !   call reader%get('T', T)                                   all of it
  !   call reader%get('T', row, start=[1, 24], count=[nx, 1])   a box
  !
  ! start: where the box begins, from 1. count: its sizes, by default those of values; values may lack dimensions of
  ! one element. stride: every stride(d)-th element. block: a block as its writer put it, from 1. points: single
  ! elements, the indices of each in a column. Of block, points and a box only one is given. Elements that no block
  ! covers are left as they were. asynchronous: values, which has that attribute, is complete when wait or end_step has
  ! returned; several such gets are fetched together.
  subroutine get(self, name, values, start, count, stride, block, points, asynchronous, timeout_ms, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(inout), asynchronous :: values(..)
    type(*), intent(in), optional :: start(:), count(:), stride(:)
    integer, intent(in), optional :: block, points(:, :), timeout_ms
    logical, intent(in), optional :: asynchronous
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    integer(c_int64_t), allocatable :: indices(:, :)
    integer(c_int64_t) :: number
    type(c_error) :: error
    integer(c_int) :: code, dtype
    number = 0
    if (present(block)) number = block
    call check_selection(name, block, present(points), present(start) .or. present(count) .or. present(stride), error)
    if (present(points)) then
      indices = int(points, c_int64_t) - 1
    else
      allocate(indices(0, 0))
    end if
    dtype = penstock_none
    if (error%code == penstock_ok) dtype = known_type(values, name, error)
    if (dtype == penstock_string) then
      call copy_text(find_text(self, name, error), values, name, error)
    else if (dtype /= penstock_none) then
      code = c_get(self%handle, c_text(name), values, dtype, start, count, stride, number, indices, error)
      if (code == penstock_ok .and. c_logical(asynchronous) == 0) then
        code = c_wait(self%handle, c_timeout(timeout_ms), error)
      end if
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! Blocks count from 1. A selection is one of a block, points and a box.
  subroutine check_selection(name, block, points, box, error)
    character(len=*), intent(in) :: name
    integer, intent(in), optional :: block
    logical, intent(in) :: points, box
    type(c_error), intent(inout) :: error
    character(len=12) :: number
    integer(c_int) :: code
    if (present(block)) then
      write (number, '(i0)') block
      if (block < 1) code = refuse(error, "'"//trim(name)//"': block is "//trim(number)//'; blocks count from 1')
    end if
    if (count([present(block), points, box]) > 1) then
      code = refuse(error, "'"//trim(name)//"': block, points, and start, count or stride exclude each other; give one")
    end if
  end subroutine

  ! The value of a text variable, with the length that it has. Of a text of every rank, that of one.
  function text(self, name, rank, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in), optional :: rank
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:), allocatable :: text
    type(c_error) :: error
    text = one_text(find_text(self, name, error), name, rank, error)
    call finish(error, stat, errmsg)
  end function

  ! Until what was enqueued is there.
  subroutine wait(self, timeout_ms, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_wait(self%handle, c_timeout(timeout_ms), error)
    call finish(error, stat, errmsg)
  end subroutine

  ! The names of the attributes in force.
  subroutine attributes(self, names, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=:), allocatable, intent(out) :: names(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_ptr), allocatable :: pointers(:)
    integer(c_int64_t) :: count, i
    count = 0
    if (c_attribute_count(self%handle, count, error) == penstock_ok) then
      allocate(pointers(count))
      do i = 1, count
        if (c_attribute_name(self%handle, i - 1, pointers(i), error) /= penstock_ok) exit
      end do
      if (error%code == penstock_ok) names = texts_of(pointers)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! What is known of an attribute. With exists, one that is not there is no error.
  subroutine inquire_attribute(self, name, exists, dtype, count, is_array, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    logical, intent(out), optional :: exists, is_array
    integer, intent(out), optional :: dtype, count
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_attribute) :: found
    if (found_attribute(self, name, found, error)) then
      if (present(dtype)) dtype = found%dtype
      if (present(count)) count = int(found%count)
      if (present(is_array)) is_array = found%is_array /= 0
    end if
    if (present(exists)) call answer(error, exists)
    call finish(error, stat, errmsg)
  end subroutine

  ! The value, or the vector of values, of an attribute; of its type and size.
  subroutine attribute(self, name, values, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(inout) :: values(..)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dtype
    dtype = known_type(values, name, error)
    if (dtype == penstock_string) then
      call copy_text(find_attribute_text(self, name, error), values, name, error)
    else if (dtype /= penstock_none) then
      code = c_attribute_values(self%handle, c_text(name), values, dtype, error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! The text of an attribute, with the length that it has; of a vector the element of that index.
  function attribute_text(self, name, index, stat, errmsg) result(text)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in), optional :: index
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:), allocatable :: text
    type(c_error) :: error
    text = one_text(find_attribute_text(self, name, error), name, index, error)
    call finish(error, stat, errmsg)
  end function

  ! Performs what is enqueued and gives the step back. The step is over also when this fails.
  subroutine reader_end_step(self, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_reader_end_step(self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Leaves the stream, and frees; the writer goes on.
  subroutine reader_close(self, stat, errmsg)
    class(penstock_reader), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_reader_close(self%handle, error)
    call c_reader_destroy(self%handle)
    self%handle = c_null_ptr
    call finish(error, stat, errmsg)
  end subroutine

  subroutine reader_statistics(self, statistics, stat, errmsg)
    class(penstock_reader), intent(in) :: self
    type(penstock_statistics), intent(out) :: statistics
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    statistics%struct_size = c_sizeof(statistics)
    code = c_reader_statistics(self%handle, statistics, error)
    call finish(error, stat, errmsg)
  end subroutine

  logical function found_variable(self, name, variable, error) result(found)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    type(c_variable), intent(inout) :: variable
    type(c_error), intent(inout) :: error
    found = whole_in_c(name, 'name', error)
    if (found) found = c_find_variable(self%handle, c_text(name), variable, error) == penstock_ok
  end function

  logical function found_attribute(self, name, attribute, error) result(found)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    type(c_attribute), intent(inout) :: attribute
    type(c_error), intent(inout) :: error
    found = whole_in_c(name, 'name', error)
    if (found) found = c_find_attribute(self%handle, c_text(name), attribute, error) == penstock_ok
  end function

  ! ---------------------------------------------------------------------------------------------------------- texts

  ! Whether what was asked for exists; that it does not is no error then.
  subroutine answer(error, exists)
    type(c_error), intent(inout) :: error
    logical, intent(out) :: exists
    exists = error%code == penstock_ok
    if (error%code == penstock_err_not_found) error%code = penstock_ok
  end subroutine

  ! The library's strings of a variable; none after an error.
  function find_text(self, name, error) result(strings)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    type(c_error), intent(inout) :: error
    type(c_ptr), allocatable :: strings(:)
    type(c_variable) :: variable
    type(c_ptr) :: first
    integer(c_size_t) :: count
    count = 0
    if (found_variable(self, name, variable, error)) then
      if (c_strings(self%handle, variable%id, first, count, error) /= penstock_ok) count = 0
    end if
    strings = pointers_at(first, count)
  end function

  function find_attribute_text(self, name, error) result(strings)
    class(penstock_reader), intent(in) :: self
    character(len=*), intent(in) :: name
    type(c_error), intent(inout) :: error
    type(c_ptr), allocatable :: strings(:)
    type(c_attribute) :: found
    integer(c_int) :: code
    if (found_attribute(self, name, found, error)) then
      if (found%dtype /= penstock_string) code = refuse(error, "'"//trim(name)//"' is no text")
    end if
    if (error%code /= penstock_ok) found%count = 0
    strings = pointers_at(found%strings, found%count)
  end function

  function pointers_at(first, count) result(pointers)
    type(c_ptr), intent(in) :: first
    integer(c_size_t), intent(in) :: count
    type(c_ptr), allocatable :: pointers(:)
    type(c_ptr), pointer :: there(:)
    allocate(pointers(count))
    if (count == 0) return
    call c_f_pointer(first, there, [count])
    pointers = there
  end function

  ! Copies of C strings, padded to the longest.
  function texts_of(pointers) result(texts)
    type(c_ptr), intent(in) :: pointers(:)
    character(len=:), allocatable :: texts(:)
    integer :: i, longest
    longest = 0
    do i = 1, size(pointers)
      longest = max(longest, int(c_strlen(pointers(i))))
    end do
    allocate(character(len=longest) :: texts(size(pointers)))
    do i = 1, size(pointers)
      texts(i) = fortran_text(pointers(i))
    end do
  end function

  ! One of them: the first, or that of the index.
  function one_text(pointers, name, index, error) result(text)
    type(c_ptr), intent(in) :: pointers(:)
    character(len=*), intent(in) :: name
    integer, intent(in), optional :: index
    type(c_error), intent(inout) :: error
    character(len=:), allocatable :: text
    integer :: chosen
    integer(c_int) :: code
    text = ''
    chosen = 1
    if (present(index)) chosen = index
    if (error%code /= penstock_ok) return
    if (chosen >= 1 .and. chosen <= size(pointers)) then
      text = fortran_text(pointers(chosen))
    else
      code = refuse(error, "'"//trim(name)//"' has no text of this index")
    end if
  end function

  ! All of them into a text or a vector of texts, padded with blanks. A text that does not fit is an error.
  subroutine copy_text(pointers, values, name, error)
    type(c_ptr), intent(in) :: pointers(:)
    class(*), intent(inout) :: values(..)
    character(len=*), intent(in) :: name
    type(c_error), intent(inout) :: error
    character(len=:), allocatable :: texts(:)
    integer(c_int) :: code
    logical :: fits
    if (error%code /= penstock_ok) return
    texts = texts_of(pointers)
    fits = .false.
    select rank (values)
    rank (0)
      select type (values)
      type is (character(len=*))
        fits = size(texts) == 1 .and. len(texts) <= len(values)
        if (fits) values = texts(1)
      end select
    rank (1)
      select type (values)
      type is (character(len=*))
        fits = size(texts) == size(values) .and. len(texts) <= len(values)
        if (fits) values = texts
      end select
    end select
    if (fits) return
    code = refuse(error, "'"//trim(name)//"' has more texts, or longer ones, than there is room for")
  end subroutine

end module
