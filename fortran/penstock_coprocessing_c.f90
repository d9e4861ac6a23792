! The C API of penstock/coprocessor.h as the module penstock_coprocessing calls it: structures, what fills them, and
! functions.
module penstock_coprocessing_c
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: real64
  use penstock_calls
  implicit none

  ! A block of elements of an unstructured mesh. The last three are names of variables; offsets and topologies are
  ! those of a block of mixed elements.
  type :: penstock_mesh_block
    character(len=:), allocatable :: name
    integer :: id = 0
    character(len=:), allocatable :: topology, connectivity, offsets, topologies
  end type

  ! Counted since create; times in seconds. docs/reference/statistics.md says what is what.
  type, bind(c) :: penstock_coprocessor_statistics
    integer(c_size_t) :: struct_size
    integer(c_int64_t) :: requests, steps, skipped_every, skipped_trigger, skipped_not_ready, skipped_dropped, &
      replaced, demands, demands_refused, demand_number
    real(c_double) :: request_s, put_s, end_s
  end type

  type, bind(c) :: c_mesh
    integer(c_size_t) :: struct_size = 0
    integer(c_int) :: type = 0
    integer(c_size_t) :: ndims = 0
    integer(c_int64_t) :: shape(penstock_max_dims) = 0
    type(c_ptr) :: axes = c_null_ptr
    real(c_double) :: origin(3) = 0, spacing(3) = 1
    integer(c_size_t) :: coordinates_count = 0
    type(c_ptr) :: coordinates = c_null_ptr
    integer(c_size_t) :: blocks_count = 0
    type(c_ptr) :: blocks = c_null_ptr
    integer(c_int32_t) :: ghost_layers = 0, refinement = 2
    type(c_ptr) :: levels = c_null_ptr, indices = c_null_ptr
    type(c_ptr) :: ghosts = c_null_ptr, node_ids = c_null_ptr, element_ids = c_null_ptr
    type(c_ptr) :: splits = c_null_ptr
    integer(c_int32_t) :: depth = 0
  end type

  type, bind(c) :: c_element_block
    type(c_ptr) :: name
    integer(c_int64_t) :: id
    type(c_ptr) :: topology, connectivity, offsets, topologies
  end type

  interface
    integer(c_int) function c_create_coprocessor(context, channel, cohort, options, handle, error) &
      bind(c, name='penstock_coprocessor_create')
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: channel(*), options(*)
      type(penstock_cohort), intent(in), optional :: cohort
      type(c_ptr), intent(inout) :: handle
      type(c_error), intent(inout) :: error
    end function
    subroutine c_destroy_coprocessor(handle) bind(c, name='penstock_coprocessor_destroy')
      import
      type(c_ptr), value :: handle
    end subroutine
    integer(c_int) function c_finalize_channel(handle, timeout_ms, status, error) &
      bind(c, name='penstock_coprocessor_finalize')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: timeout_ms
      integer(c_int), intent(inout) :: status
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_lose_channel(handle, error) bind(c, name='penstock_coprocessor_lose')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_add_pipeline(handle, path, error) bind(c, name='penstock_coprocessor_add_pipeline')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: path(*)
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_structure(handle, mesh, variable, dtype, order, field, error) &
      bind(c, name='penstock_coprocessor_structure')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: mesh(*), variable(*)
      integer(c_int), value :: dtype, order
      integer(c_int32_t), intent(inout) :: field
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_declare_double(handle, name, value, least, greatest, error) &
      bind(c, name='penstock_coprocessor_declare_double')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), value :: value, least, greatest
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_declare_int(handle, name, value, least, greatest, error) &
      bind(c, name='penstock_coprocessor_declare_int')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), value :: value, least, greatest
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_declare_bool(handle, name, value, error) bind(c, name='penstock_coprocessor_declare_bool')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: value
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_declare_string(handle, name, value, error) &
      bind(c, name='penstock_coprocessor_declare_string')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*), value(*)
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_double_of(handle, name, value, error) bind(c, name='penstock_coprocessor_double')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      real(c_double), intent(inout) :: value
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_int_of(handle, name, value, error) bind(c, name='penstock_coprocessor_int')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int64_t), intent(inout) :: value
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_bool_of(handle, name, value, error) bind(c, name='penstock_coprocessor_bool')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), intent(inout) :: value
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_string_of(handle, name, value, error) bind(c, name='penstock_coprocessor_string')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), intent(inout) :: value
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_request(handle, cycle, time, wanted, error) bind(c, name='penstock_coprocessor_request')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: cycle
      real(c_double), value :: time
      integer(c_int), intent(inout) :: wanted
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_wants(handle, field, wanted, error) bind(c, name='penstock_coprocessor_wants')
      import
      type(c_ptr), value :: handle
      integer(c_int32_t), value :: field
      integer(c_int), intent(inout) :: wanted
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_coprocess(handle, error) bind(c, name='penstock_coprocessor_coprocess')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_abandon(handle, error) bind(c, name='penstock_coprocessor_abandon')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_get_statistics(handle, statistics, error) &
      bind(c, name='penstock_coprocessor_get_statistics')
      import
      type(c_ptr), value :: handle
      type(penstock_coprocessor_statistics), intent(inout) :: statistics
      type(c_error), intent(inout) :: error
    end function

    ! penstock_fortran_coprocessing.c
    integer(c_int) function c_set_mesh(handle, name, mesh, shape, axes, levels, indices, ghosts, node_ids, &
                                       element_ids, splits, error) bind(c, name='penstock_fortran_set_mesh')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*), axes(*), levels(*), indices(*), ghosts(*), node_ids(*), &
        element_ids(*), splits(*)
      type(c_mesh), intent(in) :: mesh
      type(*), dimension(..), intent(in), optional :: shape
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_field(handle, mesh, name, dtype, association, components, units, variable, order, &
                                    min_max, field, error) bind(c, name='penstock_fortran_field')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: mesh(*), name(*), units(*), variable(*)
      integer(c_int), value :: dtype, association, components, order, min_max
      integer(c_int32_t), intent(inout) :: field
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_put_field(handle, field, name, dtype, order, values, type, start, count, lend, error) &
      bind(c, name='penstock_fortran_coprocessor_put')
      import
      type(c_ptr), value :: handle
      integer(c_int32_t), value :: field
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: dtype, order, type, lend
      type(*), dimension(..), intent(in), asynchronous :: values
      type(*), dimension(..), intent(in), optional :: start, count
      type(c_error), intent(inout) :: error
    end function
  end interface

contains

  ! Of x, y and z, as far as they are given.
  subroutine set_vector(vector, values, what, error)
    real(c_double), intent(inout) :: vector(3)
    real(real64), intent(in), optional :: values(:)
    character(len=*), intent(in) :: what
    type(c_error), intent(inout) :: error
    integer(c_int) :: code
    if (.not. present(values)) return
    if (size(values) > 3) then
      code = refuse(error, what//' has a number for x, y and z each, and no more')
    else
      vector(:size(values)) = values
    end if
  end subroutine

  ! out points into texts, which holds the five texts of each block.
  subroutine set_blocks(blocks, texts, out, error)
    type(penstock_mesh_block), intent(in) :: blocks(:)
    character(len=:), allocatable, target, intent(out) :: texts(:, :)
    type(c_element_block), allocatable, target, intent(out) :: out(:)
    type(c_error), intent(inout) :: error
    integer :: i, longest
    longest = 0
    do i = 1, size(blocks)
      longest = max(longest, length(blocks(i)%name), length(blocks(i)%topology), length(blocks(i)%connectivity), &
                    length(blocks(i)%offsets), length(blocks(i)%topologies))
    end do
    allocate(character(len=longest + 1) :: texts(5, size(blocks)))
    allocate(out(size(blocks)))
    do i = 1, size(blocks)
      call add(blocks(i)%name, texts(1, i), out(i)%name)
      call add(blocks(i)%topology, texts(2, i), out(i)%topology)
      call add(blocks(i)%connectivity, texts(3, i), out(i)%connectivity)
      call add(blocks(i)%offsets, texts(4, i), out(i)%offsets)
      call add(blocks(i)%topologies, texts(5, i), out(i)%topologies)
      out(i)%id = blocks(i)%id
    end do

  contains

    integer function length(text)
      character(len=:), allocatable, intent(in) :: text
      length = 0
      if (allocated(text)) length = len(text)
    end function

    subroutine add(text, copy, pointer)
      character(len=:), allocatable, intent(in) :: text
      character(len=*), target, intent(out) :: copy
      type(c_ptr), intent(out) :: pointer
      copy = c_null_char
      if (allocated(text)) then
        if (whole_in_c(text, 'text of a block', error)) copy = c_text(text)
      end if
      pointer = c_loc(copy)
    end subroutine

  end subroutine

end module
