! Array spaces: versions of arrays in a pool, which programs put and get by boxes. It offers the calls of
! penstock/space.h that programs in Fortran need most, in the conventions of the module penstock: arrays in Fortran's
! order with the same shape for all programs, indices from 1, stat= and errmsg=. Elements are converted to the type of
! what receives them.
module penstock_space
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64
  use penstock, only: penstock_context
  use penstock_calls
  implicit none
  private
  public :: penstock_array_space

  ! Where elements are converted, and which conversions are refused: penstock_convert_at and penstock_check.
  integer, parameter, public :: penstock_convert_automatic = 0, penstock_convert_at_reader = 1, &
    penstock_convert_on_request = 2, penstock_convert_in_advance = 3
  integer, parameter, public :: penstock_check_none = 0, penstock_check_range = 1, penstock_check_exact = 2

  type :: penstock_array_space
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create
    procedure :: destroy
    procedure :: define
    procedure :: inquire => inquire_array
    procedure :: put
    procedure :: get
    procedure :: wait
    procedure :: latest
    procedure :: done
  end type

  type, bind(c) :: c_array
    integer(c_size_t) :: struct_size
    integer(c_int) :: dtype
    integer(c_size_t) :: ndims
    integer(c_int64_t) :: shape(penstock_max_dims)
    integer(c_int32_t) :: parts, keep
    integer(c_int64_t) :: keep_ms
    integer(c_size_t) :: num_fields
  end type

  interface
    integer(c_int) function c_create(context, options, handle, error) bind(c, name='penstock_space_create')
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: options(*)
      type(c_ptr), intent(inout) :: handle
      type(c_error), intent(inout) :: error
    end function
    subroutine c_destroy(handle) bind(c, name='penstock_space_destroy')
      import
      type(c_ptr), value :: handle
    end subroutine
    integer(c_int) function c_find_array(handle, name, timeout_ms, array, error) bind(c, name='penstock_space_array')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_array), intent(inout) :: array
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_latest(handle, name, version, found, error) bind(c, name='penstock_space_latest')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(inout) :: version
      integer(c_int), intent(inout) :: found
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_done(handle, name, version, reader, timeout_ms, error) bind(c, name='penstock_space_done')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*), reader(*)
      integer(c_int64_t), value :: version, timeout_ms
      type(c_error), intent(inout) :: error
    end function

    ! penstock_fortran.c
    integer(c_int) function c_define_array(handle, name, dtype, shape, convert, keep, num_readers, readers, error) &
      bind(c, name='penstock_fortran_space_define')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: dtype, convert, keep
      type(*), dimension(..), intent(in) :: shape
      integer(c_size_t), value :: num_readers
      type(c_ptr), intent(in) :: readers(*)
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_put_box(handle, name, version, values, type, start, count, check, timeout_ms, error) &
      bind(c, name='penstock_fortran_space_put')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version, timeout_ms
      type(*), dimension(..), intent(in) :: values
      type(*), dimension(..), intent(in), optional :: start, count
      integer(c_int), value :: type, check
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_get_box(handle, name, version, values, type, start, count, check, timeout_ms, error) &
      bind(c, name='penstock_fortran_space_get')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version, timeout_ms
      type(*), dimension(..), intent(inout) :: values
      type(*), dimension(..), intent(in), optional :: start, count
      integer(c_int), value :: type, check
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_wait_for_box(handle, name, version, start, count, timeout_ms, error) &
      bind(c, name='penstock_fortran_space_wait')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version, timeout_ms
      type(*), dimension(..), intent(in) :: start, count
      type(c_error), intent(inout) :: error
    end function
  end interface

contains

  ! options: 'pool=stage,timeout_ms=10000'; the keys are those of PoolOptions in penstock/pool.hpp. By default the
  ! pool is the one that the environment names. The space keeps what it needs of the context.
  subroutine create(self, context, options, stat, errmsg)
    class(penstock_array_space), intent(inout) :: self
    type(penstock_context), intent(in) :: context
    character(len=*), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    if (whole_in_c(options, 'options', error)) then
      code = c_create(context%handle, optional_text(options), self%handle, error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  subroutine destroy(self)
    class(penstock_array_space), intent(inout) :: self
    call c_destroy(self%handle)
    self%handle = c_null_ptr
  end subroutine

  ! The same definition again is no error. convert: where elements are converted. keep: how many versions are there at
  ! most, as many as fit by default; a new one then waits until all readers have read the lowest one.
  subroutine define(self, name, dtype, shape, convert, keep, readers, stat, errmsg)
    class(penstock_array_space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: dtype
    type(*), intent(in) :: shape(:)
    integer, intent(in), optional :: convert, keep
    character(len=*), intent(in), optional :: readers(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:), allocatable, target :: names(:)
    type(c_ptr), allocatable :: pointers(:)
    type(c_error) :: error
    integer(c_int) :: code, where, most
    where = penstock_convert_automatic
    if (present(convert)) where = convert
    most = 0
    if (present(keep)) most = keep
    if (present(readers)) then
      call c_vector_of_texts(readers, 'reader', names, pointers, error)
    else
      allocate(pointers(0))
    end if
    if (error%code == penstock_ok) then
      if (whole_in_c(name, 'name', error)) &
        code = c_define_array(self%handle, c_text(name), dtype, shape, where, most, size(pointers, kind=c_size_t), &
                              pointers, error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! What an array is, once it is defined.
  subroutine inquire_array(self, name, dtype, shape, timeout_ms, stat, errmsg)
    class(penstock_array_space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: dtype
    integer(int64), allocatable, intent(out), optional :: shape(:)
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_array) :: array
    integer(c_int) :: code
    array%struct_size = c_sizeof(array)
    if (whole_in_c(name, 'name', error)) then
      code = c_find_array(self%handle, c_text(name), c_timeout(timeout_ms), array, error)
    end if
    if (error%code == penstock_ok) then
      if (present(dtype)) dtype = array%dtype
      if (present(shape)) shape = array%shape(:array%ndims)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! Puts a box of a version. start: where it begins, from 1; all ones by default. count: its sizes, where values lacks
  ! dimensions in which it has one element. check: which conversions to the array's type are refused.
  subroutine put(self, name, version, values, start, count, check, timeout_ms, stat, errmsg)
    class(penstock_array_space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: version
    class(*), intent(in) :: values(..)
    type(*), intent(in), optional :: start(:), count(:)
    integer, intent(in), optional :: check, timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dtype
    dtype = known_type(values, name, error)
    if (dtype /= penstock_none) then
      code = c_put_box(self%handle, c_text(name), int(version, c_int64_t), values, dtype, start, count, chosen(check), &
                       c_timeout(timeout_ms), error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! As put; waits until all of the box is there.
  subroutine get(self, name, version, values, start, count, check, timeout_ms, stat, errmsg)
    class(penstock_array_space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: version
    class(*), intent(inout) :: values(..)
    type(*), intent(in), optional :: start(:), count(:)
    integer, intent(in), optional :: check, timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dtype
    dtype = known_type(values, name, error)
    if (dtype /= penstock_none) then
      code = c_get_box(self%handle, c_text(name), int(version, c_int64_t), values, dtype, start, count, chosen(check), &
                       c_timeout(timeout_ms), error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  integer(c_int) function chosen(check)
    integer, intent(in), optional :: check
    chosen = penstock_check_none
    if (present(check)) chosen = check
  end function

  ! Until all of the box is there.
  subroutine wait(self, name, version, start, count, timeout_ms, stat, errmsg)
    class(penstock_array_space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: version
    type(*), intent(in) :: start(:), count(:)
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    if (whole_in_c(name, 'name', error)) then
      code = c_wait_for_box(self%handle, c_text(name), int(version, c_int64_t), start, count, c_timeout(timeout_ms), &
                            error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! The highest version of which something was put; -1: there is none.
  integer function latest(self, name, stat, errmsg)
    class(penstock_array_space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int64_t) :: version
    integer(c_int) :: code, found
    found = 0
    version = 0
    if (whole_in_c(name, 'name', error)) then
      code = c_latest(self%handle, c_text(name), version, found, error)
    end if
    latest = merge(int(version), -1, found /= 0)
    call finish(error, stat, errmsg)
  end function

  ! The reader, one of those of the definition, has read the version and all before it.
  subroutine done(self, name, version, reader, timeout_ms, stat, errmsg)
    class(penstock_array_space), intent(in) :: self
    character(len=*), intent(in) :: name, reader
    integer, intent(in) :: version
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    if (whole_in_c(name, 'name', error)) then
      if (whole_in_c(reader, 'reader', error)) &
        code = c_done(self%handle, c_text(name), int(version, c_int64_t), c_text(reader), c_timeout(timeout_ms), error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

end module
