! Array spaces in Fortran: what this example needs of penstock/space.h. Arrays are in Fortran's order; boxes count from 0, as
! in C: element (1, 1, 1) of an array that was got from `start` is element start of the space's array.
!
! What fails is written to standard error, and the program stops.
module penstock_space
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: error_unit
  implicit none
  private
  public :: space_open, space_close, space_define, space_shape, space_wait, space_get, space_put, space_done, space_latest

  ! penstock_dtype, penstock_convert_at, penstock_order, and PENSTOCK_CONFIGURED
  integer(c_int), parameter, public :: float32 = 12, float64 = 13
  integer(c_int), parameter, public :: automatic = 0, at_reader = 1, on_request = 2, in_advance = 3
  integer(c_int), parameter :: column = 1
  integer(c_int64_t), parameter :: configured = -1
  integer, parameter :: max_reader = 200  ! bytes

  type, public :: space
    private
    type(c_ptr) :: context = c_null_ptr, handle = c_null_ptr
  end type

  type, bind(c) :: c_error
    integer(c_int) :: code
    character(kind=c_char) :: message(512)
  end type

  type, bind(c) :: c_array
    integer(c_size_t) :: struct_size
    integer(c_int) :: dtype
    integer(c_size_t) :: ndims
    integer(c_int64_t) :: shape(8)
    integer(c_int32_t) :: parts
  end type

  ! penstock_array_form
  type, bind(c), public :: space_layout
    integer(c_int) :: dtype = 0, order = column
  end type

  type, bind(c) :: c_options
    integer(c_size_t) :: struct_size
    integer(c_int) :: convert = 0
    integer(c_size_t) :: num_layouts = 0
    type(c_ptr) :: layouts = c_null_ptr
    integer(c_int32_t) :: keep = 0
    integer(c_size_t) :: num_readers = 0
    type(c_ptr) :: readers = c_null_ptr
    integer(c_size_t) :: num_fields = 0
    type(c_ptr) :: fields = c_null_ptr
  end type

  type, bind(c) :: c_memory
    integer(c_size_t) :: struct_size
    integer(c_int) :: dtype = 0, order = column
    type(c_ptr) :: strides = c_null_ptr
    integer(c_int) :: check = 0
    integer(c_size_t) :: num_fields = 0
    type(c_ptr) :: fields = c_null_ptr
    integer(c_int64_t) :: structure_bytes = 0
  end type

  interface
    integer(c_int) function c_context_create(options, context, error) bind(c, name='penstock_context_create')
      import
      type(c_ptr), value :: options
      type(c_ptr), intent(out) :: context
      type(c_error), intent(out) :: error
    end function
    subroutine c_context_destroy(context) bind(c, name='penstock_context_destroy')
      import
      type(c_ptr), value :: context
    end subroutine
    integer(c_int) function c_create(context, options, handle, error) bind(c, name='penstock_space_create')
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: options(*)
      type(c_ptr), intent(out) :: handle
      type(c_error), intent(out) :: error
    end function
    subroutine c_destroy(handle) bind(c, name='penstock_space_destroy')
      import
      type(c_ptr), value :: handle
    end subroutine
    integer(c_int) function c_define(handle, name, dtype, ndims, shape, options, error) &
      bind(c, name='penstock_space_define')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: dtype
      integer(c_size_t), value :: ndims
      integer(c_int64_t), intent(in) :: shape(*)
      type(c_options), intent(in) :: options
      type(c_error), intent(out) :: error
    end function
    integer(c_int) function c_space_array(handle, name, timeout_ms, array, error) bind(c, name='penstock_space_array')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: timeout_ms
      type(c_array), intent(inout) :: array
      type(c_error), intent(out) :: error
    end function
    integer(c_int) function c_put(handle, name, version, ndims, start, count, data, memory, timeout_ms, error) &
      bind(c, name='penstock_space_put')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version, timeout_ms
      integer(c_size_t), value :: ndims
      integer(c_int64_t), intent(in) :: start(*), count(*)
      type(*), intent(in) :: data(*)
      type(c_memory), intent(in) :: memory
      type(c_error), intent(out) :: error
    end function
    integer(c_int) function c_get(handle, name, version, ndims, start, count, data, memory, timeout_ms, error) &
      bind(c, name='penstock_space_get')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version, timeout_ms
      integer(c_size_t), value :: ndims
      integer(c_int64_t), intent(in) :: start(*), count(*)
      type(*) :: data(*)
      type(c_memory), intent(in) :: memory
      type(c_error), intent(out) :: error
    end function
    integer(c_int) function c_wait(handle, name, version, ndims, start, count, timeout_ms, error) &
      bind(c, name='penstock_space_wait')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: version, timeout_ms
      integer(c_size_t), value :: ndims
      integer(c_int64_t), intent(in) :: start(*), count(*)
      type(c_error), intent(out) :: error
    end function
    integer(c_int) function c_done(handle, name, version, reader, timeout_ms, error) bind(c, name='penstock_space_done')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*), reader(*)
      integer(c_int64_t), value :: version, timeout_ms
      type(c_error), intent(out) :: error
    end function
    integer(c_int) function c_latest(handle, name, version, found, error) bind(c, name='penstock_space_latest')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(inout) :: version
      integer(c_int), intent(out) :: found
      type(c_error), intent(out) :: error
    end function
  end interface

contains

  ! The space of the pool that the environment names. options as in penstock_space_create.
  function space_open(options) result(self)
    character(len=*), intent(in) :: options
    type(space) :: self
    type(c_error) :: error
    call check(c_context_create(c_null_ptr, self%context, error), error)
    call check(c_create(self%context, options//c_null_char, self%handle, error), error)
  end function

  subroutine space_close(self)
    type(space), intent(inout) :: self
    call c_destroy(self%handle)
    call c_context_destroy(self%context)
    self = space()
  end subroutine

  ! convert: where elements are converted. layouts: for in_advance. keep, readers: of penstock_array_options.
  subroutine space_define(self, name, dtype, shape, convert, layouts, keep, readers)
    type(space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer(c_int), intent(in) :: dtype
    integer(c_int64_t), intent(in) :: shape(:)
    integer(c_int), intent(in), optional :: convert, keep
    type(space_layout), intent(in), target, optional :: layouts(:)
    character(len=*), intent(in), optional :: readers(:)
    character(len=max_reader + 1), allocatable, target :: names(:)
    type(c_ptr), allocatable, target :: pointers(:)
    type(space_layout), allocatable, target :: forms(:)
    type(c_options) :: options
    type(c_error) :: error
    integer :: i
    options%struct_size = c_sizeof(options)
    if (present(convert)) options%convert = convert
    if (present(keep)) options%keep = keep
    if (present(layouts)) then
      forms = layouts
      options%num_layouts = size(forms)
      options%layouts = c_loc(forms)
    end if
    if (present(readers)) then
      allocate(names(size(readers)), pointers(size(readers)))
      do i = 1, size(readers)
        names(i) = trim(readers(i))//c_null_char
        pointers(i) = c_loc(names(i))
      end do
      options%num_readers = size(readers)
      options%readers = c_loc(pointers)
    end if
    call check(c_define(self%handle, name//c_null_char, dtype, size(shape, kind=c_size_t), shape, options, error), error)
  end subroutine

  ! Of an array, once it is defined.
  function space_shape(self, name) result(shape)
    type(space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer(c_int64_t), allocatable :: shape(:)
    type(c_array) :: array
    type(c_error) :: error
    array%struct_size = c_sizeof(array)
    call check(c_space_array(self%handle, name//c_null_char, configured, array, error), error)
    shape = array%shape(:array%ndims)
  end function

  ! Until all elements of the box are there.
  subroutine space_wait(self, name, version, start, count)
    type(space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: version, start(:), count(:)
    type(c_error) :: error
    call check(c_wait(self%handle, name//c_null_char, version, size(start, kind=c_size_t), start, count, configured, &
                      error), error)
  end subroutine

  ! The box, in columns. data: count(1) x count(2) x ... elements of dtype, which the space converts to.
  subroutine space_get(self, name, version, start, count, dtype, data)
    type(space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: version, start(:), count(:)
    integer(c_int), intent(in) :: dtype
    type(*) :: data(*)
    type(c_error) :: error
    call check(c_get(self%handle, name//c_null_char, version, size(start, kind=c_size_t), start, count, data, &
                     in_columns(dtype), configured, error), error)
  end subroutine

  ! As space_get.
  subroutine space_put(self, name, version, start, count, dtype, data)
    type(space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer(c_int64_t), intent(in) :: version, start(:), count(:)
    integer(c_int), intent(in) :: dtype
    type(*), intent(in) :: data(*)
    type(c_error) :: error
    call check(c_put(self%handle, name//c_null_char, version, size(start, kind=c_size_t), start, count, data, &
                     in_columns(dtype), configured, error), error)
  end subroutine

  ! The reader, one of those of the definition, has read the version and all before it.
  subroutine space_done(self, name, version, reader)
    type(space), intent(in) :: self
    character(len=*), intent(in) :: name, reader
    integer(c_int64_t), intent(in) :: version
    type(c_error) :: error
    call check(c_done(self%handle, name//c_null_char, version, reader//c_null_char, configured, error), error)
  end subroutine

  ! The highest version; -1: there is none.
  function space_latest(self, name) result(version)
    type(space), intent(in) :: self
    character(len=*), intent(in) :: name
    integer(c_int64_t) :: version
    integer(c_int) :: found
    type(c_error) :: error
    version = -1
    call check(c_latest(self%handle, name//c_null_char, version, found, error), error)
  end function

  function in_columns(dtype) result(memory)
    integer(c_int), intent(in) :: dtype
    type(c_memory) :: memory
    memory = c_memory(struct_size=c_sizeof(memory), dtype=dtype)
  end function

  subroutine check(code, error)
    integer(c_int), intent(in) :: code
    type(c_error), intent(in) :: error
    integer :: i, length
    if (code == 0) return
    length = findloc(error%message, c_null_char, dim=1) - 1
    write(error_unit, '(*(a))') 'array-gradient: ', (error%message(i), i=1, length)
    error stop 1
  end subroutine

end module
