! The C API of streams as the modules of the Fortran API call it: structures and functions. Programs use the module
! penstock.
module penstock_c
  use, intrinsic :: iso_c_binding
  use penstock_constants
  implicit none

  ! The ranks of a parallel program that open a stream together: penstock_cohort of penstock/penstock.h, by default
  ! one rank. The module penstock_mpi makes one of a communicator.
  type, bind(c) :: penstock_cohort
    integer(c_int) :: rank = 0, size = 1
    type(c_ptr) :: user = c_null_ptr
    type(c_funptr) :: broadcast = c_null_funptr, gather = c_null_funptr, release = c_null_funptr
    integer(c_int) :: broadcast_is_local = 0
  end type

  ! Counted since the stream was opened; times in seconds. docs/reference/statistics.md says what is what.
  type, bind(c) :: penstock_statistics
    integer(c_size_t) :: struct_size
    integer(c_int64_t) :: steps, steps_dropped, steps_voided, bytes, bytes_copied, copies
    real(c_double) :: copy_s, wait_s
    integer(c_int64_t) :: announcement_bytes, epochs, plans_built, plans_reused, memory_bytes
    integer(c_int32_t) :: queue_depth, peers
    character(kind=c_char) :: data_plane(16)
    integer(c_int64_t) :: analysis_errors
  end type

  type, bind(c) :: c_error
    integer(c_int) :: code = penstock_ok
    character(kind=c_char) :: message(512) = c_null_char
  end type

  type, bind(c) :: c_variable
    integer(c_int32_t) :: id
    type(c_ptr) :: name
    integer(c_int) :: dtype, kind, order
    integer(c_int32_t) :: ndims
    integer(c_int64_t) :: shape(penstock_max_dims), blocks
  end type

  type, bind(c) :: c_block
    integer(c_int32_t) :: ndims
    integer(c_int) :: writer_rank
    integer(c_int64_t) :: start(penstock_max_dims), count(penstock_max_dims)
  end type

  type, bind(c) :: c_attribute
    integer(c_int) :: dtype, is_array
    integer(c_size_t) :: count
    type(c_ptr) :: values, strings
  end type

  interface
    subroutine c_context_destroy(handle) bind(c, name='penstock_context_destroy')
      import
      type(c_ptr), value :: handle
    end subroutine
    integer(c_int) function c_create_stream(context, name, cohort, options, handle, error) &
      bind(c, name='penstock_context_create_stream')
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: name(*), options(*)
      type(penstock_cohort), intent(in), optional :: cohort
      type(c_ptr), intent(inout) :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_open_stream(context, name, cohort, options, handle, error) &
      bind(c, name='penstock_context_open_stream')
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: name(*), options(*)
      type(penstock_cohort), intent(in), optional :: cohort
      type(c_ptr), intent(inout) :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_try_begin_step(handle, timeout_ms, answer, error) &
      bind(c, name='penstock_writer_try_begin_step')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: timeout_ms
      integer(c_int), intent(inout) :: answer
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_writer_begin_step(handle, timeout_ms, error) bind(c, name='penstock_writer_begin_step')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: timeout_ms
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_writer_step_number(handle, count, error) bind(c, name='penstock_writer_step_number')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), intent(inout) :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_writer_end_step(handle, error) bind(c, name='penstock_writer_end_step')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_abandon_step(handle, error) bind(c, name='penstock_writer_abandon_step')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_writer_close(handle, timeout_ms, error) bind(c, name='penstock_writer_close')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: timeout_ms
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_lose(handle, error) bind(c, name='penstock_writer_lose')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    subroutine c_writer_destroy(handle) bind(c, name='penstock_writer_destroy')
      import
      type(c_ptr), value :: handle
    end subroutine
    integer(c_int) function c_writer_statistics(handle, statistics, error) bind(c, name='penstock_writer_statistics')
      import
      type(c_ptr), value :: handle
      type(penstock_statistics), intent(inout) :: statistics
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_reader_begin_step(handle, timeout_ms, answer, error) &
      bind(c, name='penstock_reader_begin_step')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: timeout_ms
      integer(c_int), intent(inout) :: answer
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_reader_step_number(handle, count, error) bind(c, name='penstock_reader_step_number')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), intent(inout) :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_reader_seek(handle, step, error) bind(c, name='penstock_reader_seek')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: step
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_reader_steps(handle, capacity, numbers, count, error) bind(c, name='penstock_reader_steps')
      import
      type(c_ptr), value :: handle
      integer(c_size_t), value :: capacity
      integer(c_int64_t), intent(inout) :: numbers(*)
      integer(c_size_t), intent(inout) :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_wait(handle, timeout_ms, error) bind(c, name='penstock_reader_wait')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), value :: timeout_ms
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_reader_end_step(handle, error) bind(c, name='penstock_reader_end_step')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_reader_close(handle, error) bind(c, name='penstock_reader_close')
      import
      type(c_ptr), value :: handle
      type(c_error), intent(inout) :: error
    end function
    subroutine c_reader_destroy(handle) bind(c, name='penstock_reader_destroy')
      import
      type(c_ptr), value :: handle
    end subroutine
    integer(c_int) function c_variable_count(handle, count, error) bind(c, name='penstock_reader_variable_count')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), intent(inout) :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_attribute_count(handle, count, error) bind(c, name='penstock_reader_attribute_count')
      import
      type(c_ptr), value :: handle
      integer(c_int64_t), intent(inout) :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_reader_statistics(handle, statistics, error) bind(c, name='penstock_reader_statistics')
      import
      type(c_ptr), value :: handle
      type(penstock_statistics), intent(inout) :: statistics
      type(c_error), intent(inout) :: error
    end function
    subroutine c_variables_destroy(handle) bind(c, name='penstock_fortran_variables_destroy')
      import
      type(c_ptr), value :: handle
    end subroutine
    integer(c_size_t) function c_strlen(text) bind(c, name='strlen')
      import
      type(c_ptr), value :: text
    end function
    integer(c_int) function c_context_create(options, context, error) bind(c, name='penstock_context_create')
      import
      character(kind=c_char), intent(in) :: options(*)
      type(c_ptr), intent(inout) :: context
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_step_dropped(handle, dropped, error) bind(c, name='penstock_writer_step_dropped')
      import
      type(c_ptr), value :: handle
      integer(c_int), intent(inout) :: dropped
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_put_attribute_strings(handle, name, values, count, error) &
      bind(c, name='penstock_writer_put_attribute_strings')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_ptr), intent(in) :: values(*)
      integer(c_size_t), value :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_put_attribute_string(handle, name, value, error) &
      bind(c, name='penstock_writer_put_attribute_string')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*), value(*)
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_find_variable(handle, name, variable, error) bind(c, name='penstock_reader_variable')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_variable), intent(inout) :: variable
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_variable_at(handle, index, variable, error) bind(c, name='penstock_reader_variable_at')
      import
      type(c_ptr), value :: handle
      integer(c_size_t), value :: index
      type(c_variable), intent(inout) :: variable
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_blocks(handle, variable, first, capacity, block, written, error) &
      bind(c, name='penstock_reader_blocks')
      import
      type(c_ptr), value :: handle
      integer(c_int32_t), value :: variable
      integer(c_int64_t), value :: first
      integer(c_size_t), value :: capacity
      type(c_block), intent(inout) :: block
      integer(c_size_t), intent(inout) :: written
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_strings(handle, variable, strings, count, error) bind(c, name='penstock_reader_strings')
      import
      type(c_ptr), value :: handle
      integer(c_int32_t), value :: variable
      type(c_ptr), intent(inout) :: strings
      integer(c_size_t), intent(inout) :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_find_attribute(handle, name, attribute, error) bind(c, name='penstock_reader_attribute')
      import
      type(c_ptr), value :: handle
      character(kind=c_char), intent(in) :: name(*)
      type(c_attribute), intent(inout) :: attribute
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_attribute_name(handle, index, name, error) bind(c, name='penstock_reader_attribute_name')
      import
      type(c_ptr), value :: handle
      integer(c_size_t), value :: index
      type(c_ptr), intent(inout) :: name
      type(c_error), intent(inout) :: error
    end function

    ! penstock_fortran.c
    type(c_ptr) function c_variables_create(ranks) bind(c, name='penstock_fortran_variables_create')
      import
      integer(c_int), value :: ranks
    end function
    subroutine c_step_is_over(variables, lost) bind(c, name='penstock_fortran_step_is_over')
      import
      type(c_ptr), value :: variables
      integer(c_int), value :: lost
    end subroutine
    integer(c_int) function c_define(writer, variables, name, dtype, shape, kind, min_max, error) &
      bind(c, name='penstock_fortran_define')
      import
      type(c_ptr), value :: writer, variables
      character(kind=c_char), intent(in) :: name(*)
      integer(c_int), value :: dtype, kind, min_max
      type(*), dimension(..), intent(in), optional :: shape
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_put(writer, variables, name, values, type, start, count, shape, local, lend, error) &
      bind(c, name='penstock_fortran_put')
      import
      type(c_ptr), value :: writer, variables
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), intent(in), asynchronous :: values
      type(*), dimension(..), intent(in), optional :: start, count, shape
      integer(c_int), value :: type, local, lend
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_put_string(writer, variables, name, value, local, error) &
      bind(c, name='penstock_fortran_put_string')
      import
      type(c_ptr), value :: writer, variables
      character(kind=c_char), intent(in) :: name(*), value(*)
      integer(c_int), value :: local
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_put_attribute(writer, name, values, type, error) &
      bind(c, name='penstock_fortran_put_attribute')
      import
      type(c_ptr), value :: writer
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), intent(in) :: values
      integer(c_int), value :: type
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_get(reader, name, values, type, start, count, stride, block, points, error) &
      bind(c, name='penstock_fortran_get')
      import
      type(c_ptr), value :: reader
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), intent(inout), asynchronous :: values
      type(*), dimension(..), intent(in), optional :: start, count, stride
      integer(c_int), value :: type
      integer(c_int64_t), value :: block
      integer(c_int64_t), intent(in) :: points(:, :)
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_attribute_values(reader, name, values, type, error) &
      bind(c, name='penstock_fortran_attribute')
      import
      type(c_ptr), value :: reader
      character(kind=c_char), intent(in) :: name(*)
      type(*), dimension(..), intent(inout) :: values
      integer(c_int), value :: type
      type(c_error), intent(inout) :: error
    end function
  end interface

end module
