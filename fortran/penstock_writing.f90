! Writers, for the module penstock, which says how all of it is used.
module penstock_writing
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64
  use penstock_calls
  implicit none
  private
  public :: penstock_writer

  type :: penstock_writer
    type(c_ptr) :: handle = c_null_ptr, variables = c_null_ptr
  contains
    procedure :: define
    procedure :: begin_step => writer_begin_step
    procedure :: step_number => writer_step_number
    procedure :: step_dropped
    procedure :: put
    procedure :: put_attribute
    procedure :: end_step => writer_end_step
    procedure :: abandon_step
    procedure :: close => writer_close
    procedure :: lose
    procedure :: statistics => writer_statistics
  end type

contains

  ! Needed only where the first put does not say it all: for an unsigned type or a float of 16 bits, for text of every
  ! rank, for min_max (the minimum and maximum of each block). shape: of global arrays.
  subroutine define(self, name, dtype, shape, kind, min_max, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: dtype
    type(*), intent(in), optional :: shape(:)
    integer, intent(in), optional :: kind
    logical, intent(in), optional :: min_max
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, chosen
    chosen = merge(penstock_global_array, penstock_global_value, present(shape))
    if (present(kind)) chosen = kind
    if (whole_in_c(name, 'name', error)) then
      code = c_define(self%handle, self%variables, c_text(name), dtype, shape, chosen, c_logical(min_max), error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! Waits for room, and the first time for readers. With begun, a deadline that passes is no error but leaves it false.
  subroutine writer_begin_step(self, timeout_ms, begun, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    integer, intent(in), optional :: timeout_ms
    logical, intent(out), optional :: begun
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, answer
    answer = 0
    if (present(begun)) then
      code = c_try_begin_step(self%handle, c_timeout(timeout_ms), answer, error)
      begun = answer /= 0
    else
      code = c_writer_begin_step(self%handle, c_timeout(timeout_ms), error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! From 0.
  integer(int64) function writer_step_number(self, stat, errmsg) result(number)
    class(penstock_writer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    number = -1
    code = c_writer_step_number(self%handle, number, error)
    call finish(error, stat, errmsg)
  end function

  ! Whether when_full dropped this step: what is put into it costs nothing, and readers never see it.
  logical function step_dropped(self, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dropped
    dropped = 0
    code = c_step_dropped(self%handle, dropped, error)
    step_dropped = dropped /= 0
    call finish(error, stat, errmsg)
  end function

  ! Puts a value or a block of an array, and defines the variable the first time. A scalar is a value of the step, an
  ! array a block of a global array:
  !
  !   call writer%put('T', T)                                       the whole, by a writer of one rank
  !   call writer%put('T', T(2:n+1, :), start=[1, first], shape=[n, total])   a part, by one of several ranks
  !
  ! start: where the block begins, from 1. shape: of the whole, the same on all ranks; the first time, and when it
  ! changes. count: of the block, where values lacks dimensions in which it has one element. local: a value of this
  ! rank, or an array of its own. lend: values stays unchanged until the step has ended, which may spare a copy.
  ! Vectors are integers of 4 or 8 bytes.
  subroutine put(self, name, values, start, count, shape, local, lend, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(in), asynchronous :: values(..)
    type(*), intent(in), optional :: start(:), count(:), shape(:)
    logical, intent(in), optional :: local, lend
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dtype
    dtype = known_type(values, name, error)
    if (dtype == penstock_string) then
      code = put_text(self, name, values, local, error)
    else if (dtype /= penstock_none) then
      code = c_put(self%handle, self%variables, c_text(name), values, dtype, start, count, shape, c_logical(local), &
                   c_logical(lend), error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  integer(c_int) function put_text(self, name, values, local, error) result(code)
    class(penstock_writer), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(in) :: values(..)
    logical, intent(in), optional :: local
    type(c_error), intent(inout) :: error
    select rank (values)
    rank (0)
      select type (values)
      type is (character(len=*))
        code = penstock_err_invalid_argument
        if (.not. whole_in_c(values, 'text', error)) return
        code = c_put_string(self%handle, self%variables, c_text(name), c_text(values), c_logical(local), error)
        return
      end select
    end select
    code = refuse(error, "'"//trim(name)//"': there are no arrays of text; vectors of text can be attributes")
  end function

  ! A value or a vector, of numbers, logicals or text. name: 'name' or 'variable/name'. It stays in force until it is
  ! put again. Inside a step: from this step on; outside: from the next.
  subroutine put_attribute(self, name, values, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(in) :: values(..)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dtype
    dtype = known_type(values, name, error)
    if (dtype == penstock_string) then
      code = put_attribute_text(self, name, values, error)
    else if (dtype /= penstock_none) then
      code = c_put_attribute(self%handle, c_text(name), values, dtype, error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  integer(c_int) function put_attribute_text(self, name, values, error) result(code)
    class(penstock_writer), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(in) :: values(..)
    type(c_error), intent(inout) :: error
    character(len=:), allocatable, target :: copies(:)
    type(c_ptr), allocatable :: pointers(:)
    select rank (values)
    rank (0)
      select type (values)
      type is (character(len=*))
        code = penstock_err_invalid_argument
        if (.not. whole_in_c(values, 'text', error)) return
        code = c_put_attribute_string(self%handle, c_text(name), c_text(values), error)
        return
      end select
    rank (1)
      select type (values)
      type is (character(len=*))
        call c_vector_of_texts(values, 'text', copies, pointers, error)
        code = error%code
        if (code /= penstock_ok) return
        code = c_put_attribute_strings(self%handle, c_text(name), pointers, size(values, kind=c_size_t), error)
        return
      end select
    end select
    code = refuse(error, "'"//trim(name)//"': an attribute is a value or a vector")
  end function

  ! Hands the step over; it becomes visible when every rank has done so. The step is over also when this fails.
  subroutine writer_end_step(self, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    call c_step_is_over(self%variables, merge(0_c_int, 1_c_int, c_writer_end_step(self%handle, error) == penstock_ok))
    call finish(error, stat, errmsg)
  end subroutine

  ! Gives the step up, on every rank.
  subroutine abandon_step(self, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_abandon_step(self%handle, error)
    call c_step_is_over(self%variables, 1_c_int)
    call finish(error, stat, errmsg)
  end subroutine

  ! Collective. Waits until readers have released what was committed, then tells them that the stream has ended, and
  ! frees. The stream is closed even when this fails. A writer that is never closed is lost for its readers.
  subroutine writer_close(self, timeout_ms, stat, errmsg)
    class(penstock_writer), intent(inout) :: self
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_writer_close(self%handle, c_timeout(timeout_ms), error)
    call free_writer(self)
    call finish(error, stat, errmsg)
  end subroutine

  ! Closes after a failure, and frees: readers get penstock_writer_lost. Not collective; waits for no reader.
  subroutine lose(self, stat, errmsg)
    class(penstock_writer), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_lose(self%handle, error)
    call free_writer(self)
    call finish(error, stat, errmsg)
  end subroutine

  subroutine free_writer(self)
    class(penstock_writer), intent(inout) :: self
    call c_writer_destroy(self%handle)
    call c_variables_destroy(self%variables)
    self%handle = c_null_ptr
    self%variables = c_null_ptr
  end subroutine

  subroutine writer_statistics(self, statistics, stat, errmsg)
    class(penstock_writer), intent(in) :: self
    type(penstock_statistics), intent(out) :: statistics
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    statistics%struct_size = c_sizeof(statistics)
    code = c_writer_statistics(self%handle, statistics, error)
    call finish(error, stat, errmsg)
  end subroutine

end module
