! What the calls of the Fortran API have in common: what becomes of errors, texts and timeouts of C, element types.
module penstock_calls
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int8, int16, int32, int64, real32, real64
  use penstock_c
  implicit none

  integer, parameter :: wide_logical = 100  ! as in penstock_descriptors.h

contains

  ! Ends a call: stat and errmsg get the error, if there was one. Without stat an error ends the program.
  subroutine finish(error, stat, errmsg)
    type(c_error), intent(in) :: error
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:), allocatable :: message
    if (present(stat)) stat = error%code
    if (error%code == penstock_ok) return
    message = in_words_of_fortran(message_of(error))
    if (present(errmsg)) errmsg = message
    if (.not. present(stat)) error stop 'penstock: '//message
  end subroutine

  ! A handle that is NULL is one that no call has opened, or that was closed.
  function in_words_of_fortran(message) result(words)
    character(len=*), intent(in) :: message
    character(len=:), allocatable :: words
    select case (message)
    case ('context is NULL')
      words = 'the context is not open: call create first'
    case ('writer is NULL')
      words = 'the writer is not open: call create_stream first'
    case ('reader is NULL')
      words = 'the reader is not open: call open_stream first'
    case ('space is NULL')
      words = 'the array space is not open: call create first'
    case ('coprocessor is NULL')
      words = 'the coprocessor is not open: call create first'
    case ('model is NULL')
      words = 'the model is not there: call create first'
    case ('sink is NULL')
      words = 'the region is not open: call create first'
    case ('source is NULL')
      words = 'the region is not open: call open first'
    case default
      words = message
    end select
  end function

  function message_of(error) result(message)
    type(c_error), intent(in), target :: error
    character(len=:), allocatable :: message
    message = fortran_text(c_loc(error%message))
  end function

  ! Whether C has all of a text, which ends at the first NUL there. If not, error says so.
  logical function whole_in_c(text, what, error)
    character(len=*), intent(in), optional :: text
    character(len=*), intent(in) :: what
    type(c_error), intent(inout) :: error
    character(len=20) :: place
    integer :: first
    integer(c_int) :: code
    whole_in_c = .true.
    if (.not. present(text)) return
    first = index(text, c_null_char)
    if (first == 0) return
    whole_in_c = verify(text(first:), c_null_char//' ') == 0
    if (whole_in_c) return
    write (place, '(i0)') first
    code = refuse(error, what//" '"//text(:first - 1)//"' goes on after its character "//trim(place)// &
                  ', a NUL, which ends texts: take the NUL out')
  end function

  ! As whole_in_c, where only the error matters; the first one stays.
  subroutine check_text(text, what, error)
    character(len=*), intent(in), optional :: text
    character(len=*), intent(in) :: what
    type(c_error), intent(inout) :: error
    if (error%code /= penstock_ok) return
    if (whole_in_c(text, what, error)) return
  end subroutine

  ! Without the blanks at its end, as C has it.
  function c_text(text)
    character(len=*), intent(in) :: text
    character(len=:, kind=c_char), allocatable :: c_text
    c_text = trim(text)//c_null_char
  end function

  ! '' when it is not present.
  function optional_text(text)
    character(len=*), intent(in), optional :: text
    character(len=:, kind=c_char), allocatable :: optional_text
    optional_text = c_null_char
    if (present(text)) optional_text = c_text(text)
  end function

  ! Copies of all, and pointers to them, which live as long.
  subroutine c_vector_of_texts(texts, what, copies, pointers, error)
    character(len=*), intent(in) :: texts(:), what
    character(len=:), allocatable, target, intent(out) :: copies(:)
    type(c_ptr), allocatable, intent(out) :: pointers(:)
    type(c_error), intent(inout) :: error
    integer :: i
    allocate(character(len=len(texts) + 1) :: copies(size(texts)))
    do i = 1, size(texts)
      if (.not. whole_in_c(texts(i), what, error)) exit
      copies(i) = c_text(texts(i))
    end do
    pointers = [(c_loc(copies(i)), i = 1, size(texts))]
  end subroutine

  ! A copy of a C string.
  function fortran_text(pointer) result(text)
    type(c_ptr), intent(in) :: pointer
    character(len=:), allocatable :: text
    character(kind=c_char), pointer :: characters(:)
    integer :: i
    if (.not. c_associated(pointer)) then
      text = ''
      return
    end if
    call c_f_pointer(pointer, characters, [c_strlen(pointer)])
    allocate(character(len=size(characters)) :: text)
    do i = 1, size(characters)
      text(i:i) = characters(i)
    end do
  end function

  integer(c_int) function c_logical(value)
    logical, intent(in), optional :: value
    c_logical = 0
    if (present(value)) c_logical = merge(1_c_int, 0_c_int, value)
  end function

  integer(c_int64_t) function c_timeout(timeout_ms)
    integer, intent(in), optional :: timeout_ms
    c_timeout = penstock_configured
    if (present(timeout_ms)) c_timeout = timeout_ms
    if (c_timeout == penstock_forever) c_timeout = huge(c_timeout)
  end function

  ! The error of the module itself.
  integer(c_int) function refuse(error, message) result(code)
    type(c_error), intent(inout) :: error
    character(len=*), intent(in) :: message
    integer :: i
    code = penstock_err_invalid_argument
    error%code = code
    error%message = c_null_char
    do i = 1, min(len(message), size(error%message) - 1)
      error%message(i) = message(i:i)
    end do
  end function

  ! The element type of an argument; penstock_none when it is none of Penstock's. Arguments are class(*), not type(*),
  ! whose descriptors do not tell text from bytes in gfortran 12. Specific procedures would be eleven in place of one.
  integer function element_type(values) result(dtype)
    class(*), intent(in) :: values(..)
    dtype = penstock_none
    select rank (values)
    rank (0)
      include 'element_type.inc'
    rank (1)
      include 'element_type.inc'
    rank (2)
      include 'element_type.inc'
    rank (3)
      include 'element_type.inc'
    rank (4)
      include 'element_type.inc'
    rank (5)
      include 'element_type.inc'
    rank (6)
      include 'element_type.inc'
    rank (7)
      include 'element_type.inc'
    rank (8)
      include 'element_type.inc'
    end select
  end function

  ! That, or an error, also of the name.
  integer function known_type(values, name, error) result(dtype)
    class(*), intent(in) :: values(..)
    character(len=*), intent(in) :: name
    type(c_error), intent(inout) :: error
    integer(c_int) :: code
    dtype = penstock_none
    if (.not. whole_in_c(name, 'name', error)) return
    dtype = element_type(values)
    if (dtype == penstock_none) code = refuse(error, "'"//trim(name)//"': there are no variables of this type or rank")
  end function

end module
