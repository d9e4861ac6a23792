! The C API of penstock/region.h as the module penstock_regions calls it: structures and functions.
module penstock_regions_c
  use, intrinsic :: iso_c_binding
  use penstock_c
  implicit none

  type, bind(c) :: c_entity
    integer(c_size_t) :: struct_size = 0
    integer(c_int) :: type = 0
    type(c_ptr) :: name = c_null_ptr
    integer(c_int64_t) :: id = 0, count = 0
    type(c_ptr) :: topology = c_null_ptr
    integer(c_int) :: member_type = 4  ! as penstock_entity_of
    integer(c_size_t) :: num_members = 0
    type(c_ptr) :: members = c_null_ptr
    integer(c_size_t) :: num_fields = 0, num_properties = 0
  end type

  type, bind(c) :: c_field
    integer(c_size_t) :: struct_size = 0
    type(c_ptr) :: name = c_null_ptr
    integer(c_int) :: dtype = 0
    type(c_ptr) :: storage = c_null_ptr
    integer(c_int) :: role = 0
    integer(c_int64_t) :: count = 0
    integer(c_size_t) :: num_component_names = 0
    type(c_ptr) :: component_names = c_null_ptr
    integer(c_int64_t) :: rows = 0
    integer(c_int32_t) :: components = 0
  end type

  type, bind(c) :: c_model_info
    integer(c_size_t) :: struct_size = 0
    type(c_ptr) :: title = c_null_ptr
    integer(c_int32_t) :: dimensions = 0
    integer(c_size_t) :: num_entities = 0, num_properties = 0, num_qa = 0, num_information = 0
    type(c_ptr) :: information = c_null_ptr
  end type

  interface
    integer(c_int) function c_model_create(title, dimensions, model, error) bind(c, name='penstock_model_create')
      import
      character(kind=c_char), intent(in) :: title(*)
      integer(c_int32_t), value :: dimensions
      type(c_ptr), intent(inout) :: model
      type(c_error), intent(inout) :: error
    end function
    subroutine c_model_destroy(model) bind(c, name='penstock_model_destroy')
      import
      type(c_ptr), value :: model
    end subroutine
    integer(c_int) function c_add_entity(model, entity, number, error) bind(c, name='penstock_model_add_entity')
      import
      type(c_ptr), value :: model
      type(c_entity), intent(in) :: entity
      integer(c_size_t), intent(inout) :: number
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_add_field(model, entity, field, number, error) bind(c, name='penstock_model_add_field')
      import
      type(c_ptr), value :: model
      integer(c_size_t), value :: entity
      type(c_field), intent(in) :: field
      integer(c_size_t), intent(inout) :: number
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_model_info_of(model, info, error) bind(c, name='penstock_model_get_info')
      import
      type(c_ptr), value :: model
      type(c_model_info), intent(inout) :: info
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_entity_of(model, number, entity, error) bind(c, name='penstock_model_entity')
      import
      type(c_ptr), value :: model
      integer(c_size_t), value :: number
      type(c_entity), intent(inout) :: entity
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_field_of(model, entity, number, field, error) bind(c, name='penstock_model_field')
      import
      type(c_ptr), value :: model
      integer(c_size_t), value :: entity, number
      type(c_field), intent(inout) :: field
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_find_entity(model, type, name, number, error) bind(c, name='penstock_model_find_entity')
      import
      type(c_ptr), value :: model
      integer(c_int), value :: type
      character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), intent(inout) :: number
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_find_field(model, entity, name, number, error) bind(c, name='penstock_model_find_field')
      import
      type(c_ptr), value :: model
      integer(c_size_t), value :: entity
      character(kind=c_char), intent(in) :: name(*)
      integer(c_size_t), intent(inout) :: number
      type(c_error), intent(inout) :: error
    end function

    integer(c_int) function c_create_region(context, name, cohort, options, sink, error) &
      bind(c, name='penstock_context_create_region')
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: name(*), options(*)
      type(penstock_cohort), intent(in), optional :: cohort
      type(c_ptr), intent(inout) :: sink
      type(c_error), intent(inout) :: error
    end function
    subroutine c_sink_destroy(sink) bind(c, name='penstock_region_sink_destroy')
      import
      type(c_ptr), value :: sink
    end subroutine
    integer(c_int) function c_begin_state(sink, time, error) bind(c, name='penstock_region_sink_begin_state')
      import
      type(c_ptr), value :: sink
      real(c_double), value :: time
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_end_state(sink, error) bind(c, name='penstock_region_sink_end_state')
      import
      type(c_ptr), value :: sink
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_abandon_state(sink, error) bind(c, name='penstock_region_sink_abandon_state')
      import
      type(c_ptr), value :: sink
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_sink_close(sink, error) bind(c, name='penstock_region_sink_close')
      import
      type(c_ptr), value :: sink
      type(c_error), intent(inout) :: error
    end function

    integer(c_int) function c_open_region(context, name, cohort, options, source, error) &
      bind(c, name='penstock_context_open_region')
      import
      type(c_ptr), value :: context
      character(kind=c_char), intent(in) :: name(*), options(*)
      type(penstock_cohort), intent(in), optional :: cohort
      type(c_ptr), intent(inout) :: source
      type(c_error), intent(inout) :: error
    end function
    subroutine c_source_destroy(source) bind(c, name='penstock_region_source_destroy')
      import
      type(c_ptr), value :: source
    end subroutine
    integer(c_int) function c_parts(source, parts, error) bind(c, name='penstock_region_source_parts')
      import
      type(c_ptr), value :: source
      integer(c_int32_t), intent(inout) :: parts
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_source_model(source, part, model, error) bind(c, name='penstock_region_source_model')
      import
      type(c_ptr), value :: source
      integer(c_int32_t), value :: part
      type(c_ptr), intent(inout) :: model
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_next_state(source, timeout_ms, outcome, time, error) &
      bind(c, name='penstock_region_source_next_state')
      import
      type(c_ptr), value :: source
      integer(c_int64_t), value :: timeout_ms
      integer(c_int), intent(inout) :: outcome
      real(c_double), intent(inout) :: time
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_times(source, capacity, times, count, error) bind(c, name='penstock_region_source_times')
      import
      type(c_ptr), value :: source
      integer(c_size_t), value :: capacity
      real(c_double), intent(inout) :: times(*)
      integer(c_size_t), intent(inout) :: count
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_seek(source, state, error) bind(c, name='penstock_region_source_seek')
      import
      type(c_ptr), value :: source
      integer(c_int64_t), value :: state
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_join(source, joined, error) bind(c, name='penstock_region_source_join')
      import
      type(c_ptr), value :: source
      type(c_ptr), intent(inout) :: joined
      type(c_error), intent(inout) :: error
    end function

    ! penstock_fortran_regions.c
    integer(c_int) function c_define_model(sink, model, fields, error) bind(c, name='penstock_fortran_region_define')
      import
      type(c_ptr), value :: sink, model
      type(c_ptr), intent(inout) :: fields
      type(c_error), intent(inout) :: error
    end function
    subroutine c_fields_destroy(fields) bind(c, name='penstock_fortran_fields_destroy')
      import
      type(c_ptr), value :: fields
    end subroutine
    integer(c_int) function c_write(sink, fields, entity, field, values, type, error) &
      bind(c, name='penstock_fortran_region_write')
      import
      type(c_ptr), value :: sink, fields
      integer(c_size_t), value :: entity, field
      type(*), dimension(..), intent(in) :: values
      integer(c_int), value :: type
      type(c_error), intent(inout) :: error
    end function
    integer(c_int) function c_read(source, part, entity, field, values, type, first, error) &
      bind(c, name='penstock_fortran_region_read')
      import
      type(c_ptr), value :: source
      integer(c_int), value :: part, type
      integer(c_size_t), value :: entity, field
      type(*), dimension(..), intent(inout) :: values
      integer(c_int64_t), value :: first
      type(c_error), intent(inout) :: error
    end function
  end interface

end module
