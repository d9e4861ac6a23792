! Mesh regions: a model of blocks and sets with fields, and states with their values, which go to Exodus files, streams
! or nowhere. It offers the calls of penstock/region.h that programs in Fortran need most, in the conventions of the
! module penstock: stat= and errmsg=; parts, entities, fields, rows and states count from 1.
!
! Values: a field of several components has them as the first dimension of its array, coordinates(3, nodes) and
! connectivity(8, elements); the dimensions behind may be several, T(nx, ny) for nx * ny nodes. A contiguous array is
! handed over where it is, a section is copied. The numbers in connectivity and sets are values, the same for all
! languages: they count from 0, and sides of elements from 1.
!
! A model, sink or source is a handle, used by one thread at a time. Not offered: structured blocks, assemblies,
! properties, QA records, names of components.
module penstock_regions
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int64, real64
  use penstock, only: penstock_context
  use penstock_calls
  use penstock_regions_c
  implicit none
  private
  public :: penstock_model, penstock_region_sink, penstock_region_source

  ! penstock_entity_type, penstock_role and penstock_state_outcome.
  integer, parameter, public :: penstock_region = 0, penstock_node_block = 1, penstock_edge_block = 2, &
    penstock_face_block = 3, penstock_element_block = 4, penstock_node_set = 5, penstock_edge_set = 6, &
    penstock_face_set = 7, penstock_element_set = 8, penstock_side_set = 9, penstock_comm_set = 10, &
    penstock_structured_block = 11, penstock_assembly = 12, penstock_blob = 13
  integer, parameter, public :: penstock_role_mesh = 0, penstock_role_attribute = 1, penstock_role_map = 2, &
    penstock_role_communication = 3, penstock_role_reduction = 4, penstock_role_transient = 5
  integer, parameter, public :: penstock_state_ready = 0, penstock_state_not_ready = 1, penstock_state_end = 2, &
    penstock_state_new_model = 3

  ! One part of a region, without values.
  type :: penstock_model
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => model_create
    procedure :: destroy => model_destroy
    procedure :: add_entity
    procedure :: add_field
    procedure :: inquire => inquire_model
    procedure :: inquire_entity
    procedure :: inquire_field
    procedure :: find_entity
    procedure :: find_field
  end type

  ! Writes the part of this rank.
  type :: penstock_region_sink
    type(c_ptr) :: handle = c_null_ptr, fields = c_null_ptr
  contains
    procedure :: create => sink_create
    procedure :: define
    procedure :: write => write_field
    procedure :: begin_state
    procedure :: end_state
    procedure :: abandon_state
    procedure :: close => sink_close
    procedure :: destroy => sink_destroy
  end type

  ! Reads the parts of all ranks.
  type :: penstock_region_source
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: open => source_open
    procedure :: parts
    procedure :: model => source_model
    procedure :: next_state
    procedure :: times => source_times
    procedure :: seek
    procedure :: read => read_field
    procedure :: join
    procedure :: destroy => source_destroy
  end type

contains

  ! ---------------------------------------------------------------------------------------------------------- models

  ! dimensions: of space, at most 3. A model is checked when a sink defines it.
  subroutine model_create(self, title, dimensions, stat, errmsg)
    class(penstock_model), intent(inout) :: self
    character(len=*), intent(in) :: title
    integer, intent(in) :: dimensions
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    if (whole_in_c(title, 'title', error)) code = c_model_create(c_text(title), dimensions, self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  subroutine model_destroy(self)
    class(penstock_model), intent(inout) :: self
    call c_model_destroy(self%handle)
    self%handle = c_null_ptr
  end subroutine

  ! First the region itself, then the others by type. count: nodes, elements, members or sides of this part. topology:
  ! of blocks, 'hex8'. entity: its number.
  subroutine add_entity(self, type, name, id, count, entity, topology, stat, errmsg)
    class(penstock_model), intent(in) :: self
    integer, intent(in) :: type, id, count
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: entity
    character(len=*), intent(in), optional :: topology
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:, kind=c_char), allocatable, target :: its_name, its_topology
    type(c_error) :: error
    type(c_entity) :: new
    integer(c_size_t) :: number
    integer(c_int) :: code
    number = 0
    its_name = c_text(name)
    its_topology = optional_text(topology)
    new = c_entity(struct_size=c_sizeof(new), type=type, name=c_loc(its_name), id=id, count=count, &
                   topology=c_loc(its_topology))
    call check_text(name, 'name', error)
    call check_text(topology, 'topology', error)
    if (count < 0) code = refuse(error, "'"//trim(name)//"': count is less than 0")
    if (error%code == penstock_ok) code = c_add_entity(self%handle, new, number, error)
    if (present(entity)) entity = int(number) + 1
    call finish(error, stat, errmsg)
  end subroutine

  ! penstock/region.hpp lists the fields of role mesh that each type of entity has. storage: 'vector_3d', '[8]' for an
  ! array of 8; 'scalar' by default. count: of model fields, how many rows, where there is not one for each node,
  ! element or member. field: its number.
  subroutine add_field(self, entity, name, dtype, role, field, storage, count, stat, errmsg)
    class(penstock_model), intent(in) :: self
    integer, intent(in) :: entity, dtype, role
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: field
    character(len=*), intent(in), optional :: storage
    integer, intent(in), optional :: count
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:, kind=c_char), allocatable, target :: its_name, its_storage
    type(c_error) :: error
    type(c_field) :: new
    integer(c_size_t) :: number
    integer(c_int) :: code
    number = 0
    its_name = c_text(name)
    its_storage = optional_text(storage)
    new = c_field(struct_size=c_sizeof(new), name=c_loc(its_name), dtype=dtype, role=role)
    if (present(storage)) new%storage = c_loc(its_storage)
    if (present(count)) new%count = count
    call check_text(name, 'name', error)
    call check_text(storage, 'storage', error)
    if (new%count < 0) code = refuse(error, "'"//trim(name)//"': count is less than 0")
    if (error%code == penstock_ok) code = c_add_field(self%handle, from_0(entity), new, number, error)
    if (present(field)) field = int(number) + 1
    call finish(error, stat, errmsg)
  end subroutine

  ! A number from 1 as C counts it; of less than 1, one that no model has.
  integer(c_size_t) function from_0(number)
    integer, intent(in) :: number
    from_0 = huge(from_0)
    if (number > 0) from_0 = number - 1
  end function

  ! entities: how many there are.
  subroutine inquire_model(self, title, dimensions, entities, stat, errmsg)
    class(penstock_model), intent(in) :: self
    character(len=:), allocatable, intent(out), optional :: title
    integer, intent(out), optional :: dimensions, entities, stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_model_info) :: info
    info%struct_size = c_sizeof(info)
    if (c_model_info_of(self%handle, info, error) == penstock_ok) then
      if (present(title)) title = fortran_text(info%title)
      if (present(dimensions)) dimensions = info%dimensions
      if (present(entities)) entities = int(info%num_entities)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! fields: how many it has.
  subroutine inquire_entity(self, entity, type, name, id, count, topology, fields, stat, errmsg)
    class(penstock_model), intent(in) :: self
    integer, intent(in) :: entity
    integer, intent(out), optional :: type, fields
    integer(int64), intent(out), optional :: id, count
    character(len=:), allocatable, intent(out), optional :: name, topology
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_entity) :: its
    its%struct_size = c_sizeof(its)
    if (c_entity_of(self%handle, from_0(entity), its, error) == penstock_ok) then
      if (present(type)) type = its%type
      if (present(name)) name = fortran_text(its%name)
      if (present(id)) id = its%id
      if (present(count)) count = its%count
      if (present(topology)) topology = fortran_text(its%topology)
      if (present(fields)) fields = int(its%num_fields)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! A field has rows * components values.
  subroutine inquire_field(self, entity, field, name, dtype, storage, role, rows, components, stat, errmsg)
    class(penstock_model), intent(in) :: self
    integer, intent(in) :: entity, field
    character(len=:), allocatable, intent(out), optional :: name, storage
    integer, intent(out), optional :: dtype, role, components
    integer(int64), intent(out), optional :: rows
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_field) :: its
    its%struct_size = c_sizeof(its)
    if (c_field_of(self%handle, from_0(entity), from_0(field), its, error) == penstock_ok) then
      if (present(name)) name = fortran_text(its%name)
      if (present(dtype)) dtype = its%dtype
      if (present(storage)) storage = fortran_text(its%storage)
      if (present(role)) role = its%role
      if (present(rows)) rows = its%rows
      if (present(components)) components = its%components
    end if
    call finish(error, stat, errmsg)
  end subroutine

  integer function find_entity(self, type, name, stat, errmsg)
    class(penstock_model), intent(in) :: self
    integer, intent(in) :: type
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_size_t) :: number
    integer(c_int) :: code
    number = 0
    if (whole_in_c(name, 'name', error)) code = c_find_entity(self%handle, type, c_text(name), number, error)
    find_entity = int(number) + 1
    call finish(error, stat, errmsg)
  end function

  ! The first of the name.
  integer function find_field(self, entity, name, stat, errmsg)
    class(penstock_model), intent(in) :: self
    integer, intent(in) :: entity
    character(len=*), intent(in) :: name
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_size_t) :: number
    integer(c_int) :: code
    number = 0
    if (whole_in_c(name, 'name', error)) code = c_find_field(self%handle, from_0(entity), c_text(name), number, error)
    find_field = int(number) + 1
    call finish(error, stat, errmsg)
  end function

  ! ---------------------------------------------------------------------------------------------------------- writing

  ! Collective. options: 'exodus,path=plate.e'; the keys are those of MeshOptions, a word without '=' names the
  ! database. penstock.yaml and the environment have the last word. The context outlives the sink.
  subroutine sink_create(self, context, name, options, cohort, stat, errmsg)
    class(penstock_region_sink), intent(inout) :: self
    type(penstock_context), intent(in) :: context
    character(len=*), intent(in) :: name
    character(len=*), intent(in), optional :: options
    type(penstock_cohort), intent(in), optional :: cohort
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    call check_text(name, 'name', error)
    call check_text(options, 'options', error)
    if (error%code == penstock_ok) &
      code = c_create_region(context%handle, c_text(name), cohort, optional_text(options), self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Collective. Before anything else, and again between states where the topology has changed. The model is copied.
  subroutine define(self, model, stat, errmsg)
    class(penstock_region_sink), intent(inout) :: self
    type(penstock_model), intent(in) :: model
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_define_model(self%handle, model%handle, self%fields, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! The whole field: model fields before the first state, each once; the others in each state. values is free again
  ! when it returns.
  subroutine write_field(self, entity, field, values, stat, errmsg)
    class(penstock_region_sink), intent(in) :: self
    integer, intent(in) :: entity, field
    class(*), intent(in) :: values(..)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dtype
    dtype = known_type(values, 'values', error)
    if (dtype /= penstock_none) &
      code = c_write(self%handle, self%fields, from_0(entity), from_0(field), values, dtype, error)
    call finish(error, stat, errmsg)
  end subroutine

  subroutine begin_state(self, time, stat, errmsg)
    class(penstock_region_sink), intent(in) :: self
    real(real64), intent(in) :: time
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_begin_state(self%handle, time, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! The state is complete when it has ended on all ranks. A field that was not written is an error.
  subroutine end_state(self, stat, errmsg)
    class(penstock_region_sink), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_end_state(self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Gives the state up that was begun, on all ranks.
  subroutine abandon_state(self, stat, errmsg)
    class(penstock_region_sink), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_abandon_state(self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Collective; frees, also when it fails.
  subroutine sink_close(self, stat, errmsg)
    class(penstock_region_sink), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_sink_close(self%handle, error)
    call sink_destroy(self)
    call finish(error, stat, errmsg)
  end subroutine

  ! Frees. Without close before it, the region is abandoned: readers do not see what is incomplete.
  subroutine sink_destroy(self)
    class(penstock_region_sink), intent(inout) :: self
    call c_sink_destroy(self%handle)
    call c_fields_destroy(self%fields)
    self%handle = c_null_ptr
    self%fields = c_null_ptr
  end subroutine

  ! ---------------------------------------------------------------------------------------------------------- reading

  ! Collective. name: of a region, or a file. options: as for a sink.
  subroutine source_open(self, context, name, options, cohort, stat, errmsg)
    class(penstock_region_source), intent(inout) :: self
    type(penstock_context), intent(in) :: context
    character(len=*), intent(in) :: name
    character(len=*), intent(in), optional :: options
    type(penstock_cohort), intent(in), optional :: cohort
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    call check_text(name, 'name', error)
    call check_text(options, 'options', error)
    if (error%code == penstock_ok) &
      code = c_open_region(context%handle, c_text(name), cohort, optional_text(options), self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  subroutine source_destroy(self)
    class(penstock_region_source), intent(inout) :: self
    call c_source_destroy(self%handle)
    self%handle = c_null_ptr
  end subroutine

  ! How many ranks wrote it.
  integer function parts(self, stat, errmsg)
    class(penstock_region_source), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int32_t) :: number
    integer(c_int) :: code
    number = 0
    code = c_parts(self%handle, number, error)
    parts = number
    call finish(error, stat, errmsg)
  end function

  ! A copy of the model of a part, in place of what model was; the caller destroys it. On a stream each part that is
  ! read is asked for before the first state.
  subroutine source_model(self, part, model, stat, errmsg)
    class(penstock_region_source), intent(in) :: self
    integer, intent(in) :: part
    type(penstock_model), intent(inout) :: model
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    call model_destroy(model)
    code = c_source_model(self%handle, part - 1, model%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Goes on to the next complete state. outcome: penstock_state_ready; _not_ready: the deadline passed; _end: of a file,
  ! for now; _new_model: the topology has changed, ask for the model, its states follow.
  subroutine next_state(self, outcome, time, timeout_ms, stat, errmsg)
    class(penstock_region_source), intent(in) :: self
    integer, intent(out) :: outcome
    real(real64), intent(inout), optional :: time
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    real(c_double) :: its_time
    integer(c_int) :: code, found
    found = penstock_state_not_ready
    code = c_next_state(self%handle, c_timeout(timeout_ms), found, its_time, error)
    outcome = found
    if (present(time) .and. code == penstock_ok .and. outcome == penstock_state_ready) time = its_time
    call finish(error, stat, errmsg)
  end subroutine

  ! Of the states that can be sought. penstock_err_unsupported: they come in order only.
  subroutine source_times(self, times, stat, errmsg)
    class(penstock_region_source), intent(in) :: self
    real(real64), allocatable, intent(out) :: times(:)
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_size_t) :: count
    count = 0
    do
      allocate(times(count))
      if (c_times(self%handle, size(times, kind=c_size_t), times, count, error) /= penstock_ok) exit
      if (count <= size(times)) exit
      deallocate(times)
    end do
    if (count < size(times)) times = times(:count)
    call finish(error, stat, errmsg)
  end subroutine

  ! The next state is this one.
  subroutine seek(self, state, stat, errmsg)
    class(penstock_region_source), intent(in) :: self
    integer, intent(in) :: state
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_seek(self%handle, int(from_0(state), c_int64_t), error)
    call finish(error, stat, errmsg)
  end subroutine

  ! A field of the model, or of the present state. first: of the rows, where values holds not all of them.
  subroutine read_field(self, part, entity, field, values, first, stat, errmsg)
    class(penstock_region_source), intent(in) :: self
    integer, intent(in) :: part, entity, field
    class(*), intent(inout) :: values(..)
    integer, intent(in), optional :: first
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int64_t) :: row
    integer(c_int) :: code, dtype
    row = -1  ! all
    if (present(first)) row = from_0(first)
    dtype = known_type(values, 'values', error)
    if (dtype /= penstock_none) &
      code = c_read(self%handle, part - 1, from_0(entity), from_0(field), values, dtype, row, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! All parts as one, in a source of its own: nodes and elements with equal ids are merged. The two share their states:
  ! use one of them, and destroy both.
  subroutine join(self, joined, stat, errmsg)
    class(penstock_region_source), intent(in) :: self
    type(penstock_region_source), intent(inout) :: joined
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_join(self%handle, joined%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

end module
