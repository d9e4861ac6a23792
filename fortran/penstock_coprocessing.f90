! Co-processing: a simulation describes its meshes and fields once, asks at each cycle whether somebody wants them, and
! lends them. It offers the calls of penstock/coprocessor.h in the conventions of the module penstock: stat= and
! errmsg=, start= from 1.
!
!   type(penstock_coprocessor) :: coprocessor
!   type(penstock_field) :: temperature
!   call coprocessor%create(context, 'heat')
!   call coprocessor%set_mesh('grid', penstock_mesh_uniform, shape=[nx, ny])
!   call coprocessor%field('grid', 'T', penstock_float64, temperature, units='K')
!   do cycle = 1, cycles
!     call coprocessor%request(cycle, time, wanted)
!     if (wanted) then
!       call coprocessor%put(temperature, T, lend=.true.)
!       call coprocessor%coprocess()
!     end if
!   end do
!   call coprocessor%finalize()
!
! Order: a field has the shape of its array. T(nx, ny, nz) is a field on a mesh of shape=[nx, ny, nz], whose axes are
! 'xyz' unless axes= says otherwise, and v(nx, ny, nz, 3) one of three components. An array whose components come
! first, v(3, nx, ny, nz) or connectivity(8, elements), is put with order=penstock_row: the variable then has the
! dimensions in reverse, (nz, ny, nx, 3) and (elements, 8), and so has the shape of its mesh. Neither is copied to
! another order. Connectivity holds numbers of nodes from 0, as in all languages.
!
! All calls but those between request and coprocess are collective. A coprocessor is used by one thread at a time.
module penstock_coprocessing
  use, intrinsic :: iso_c_binding
  use, intrinsic :: iso_fortran_env, only: int32, int64, real32, real64
  use penstock, only: penstock_context
  use penstock_calls
  use penstock_coprocessing_c
  implicit none
  private
  public :: penstock_coprocessor, penstock_field, penstock_mesh_block, penstock_coprocessor_statistics

  ! Types of meshes, and what fields are of: penstock_mesh_type and penstock_association.
  integer, parameter, public :: penstock_mesh_uniform = 0, penstock_mesh_rectilinear = 1, &
    penstock_mesh_curvilinear = 2, penstock_mesh_unstructured = 3, penstock_mesh_particles = 4, penstock_mesh_amr = 5, &
    penstock_mesh_multiblock = 6
  integer, parameter, public :: penstock_node = 0, penstock_element = 1

  ! What field and structure give, and put takes. Cheap to copy.
  type :: penstock_field
    private
    integer(c_int32_t) :: id = -1
    integer :: dtype = penstock_none, order = penstock_column
    character(len=:), allocatable :: name
  end type

  type :: penstock_coprocessor
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create
    procedure :: add_pipeline
    procedure :: set_mesh
    procedure :: field => add_field
    procedure :: structure => add_structure
    procedure :: declare
    procedure :: value => read_value
    procedure :: request
    procedure :: wants
    procedure :: put
    procedure :: coprocess
    procedure :: abandon
    procedure :: statistics => read_statistics
    procedure :: finalize
    procedure :: lose
  end type

contains

  ! Collective. options: 'wait=automatic,every=10,queue_steps=2'; the keys are those of CoprocessorOptions and
  ! StreamOptions, a word without '=' names the engine. The context outlives the coprocessor.
  subroutine create(self, context, channel, options, cohort, stat, errmsg)
    class(penstock_coprocessor), intent(inout) :: self
    type(penstock_context), intent(in) :: context
    character(len=*), intent(in) :: channel
    character(len=*), intent(in), optional :: options
    type(penstock_cohort), intent(in), optional :: cohort
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    call check_text(channel, 'channel', error)
    call check_text(options, 'options', error)
    if (error%code == penstock_ok) &
      code = c_create_coprocessor(context%handle, c_text(channel), cohort, optional_text(options), self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! A pipeline of the analysis, before the first request. With engine insitu this process runs it.
  subroutine add_pipeline(self, path, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    character(len=*), intent(in) :: path
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    if (whole_in_c(path, 'path', error)) code = c_add_pipeline(self%handle, c_text(path), error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Defines a mesh, or describes it anew from the next step on; penstock/mesh.hpp says what each type has. shape: nodes
  ! (amr: cells of a block) in each dimension. axes: 'xyz' by default. coordinates: names of variables; of a multiblock
  ! those of its meshes. levels, indices, ghosts, node_ids, element_ids, splits: names of variables.
  subroutine set_mesh(self, name, type, shape, axes, origin, spacing, coordinates, blocks, ghost_layers, refinement, &
                      levels, indices, ghosts, node_ids, element_ids, splits, depth, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    character(len=*), intent(in) :: name
    integer, intent(in) :: type
    type(*), intent(in), optional :: shape(:)
    character(len=*), intent(in), optional :: axes, coordinates(:), levels, indices, ghosts, node_ids, element_ids, &
      splits
    real(real64), intent(in), optional :: origin(:), spacing(:)
    type(penstock_mesh_block), intent(in), optional :: blocks(:)
    integer, intent(in), optional :: ghost_layers, refinement, depth
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    character(len=:), allocatable, target :: names(:), texts(:, :)
    type(c_ptr), allocatable, target :: pointers(:)
    type(c_element_block), allocatable, target :: c_blocks(:)
    type(c_error) :: error
    type(c_mesh) :: mesh
    integer(c_int) :: code
    mesh%type = type
    call set_vector(mesh%origin, origin, 'origin', error)
    call set_vector(mesh%spacing, spacing, 'spacing', error)
    if (present(ghost_layers)) mesh%ghost_layers = ghost_layers
    if (present(refinement)) mesh%refinement = refinement
    if (present(depth)) mesh%depth = depth
    if (present(coordinates)) then
      call c_vector_of_texts(coordinates, 'name of coordinates', names, pointers, error)
      mesh%coordinates_count = size(coordinates)
      mesh%coordinates = c_loc(pointers)
    end if
    if (present(blocks)) then
      call set_blocks(blocks, texts, c_blocks, error)
      mesh%blocks_count = size(blocks)
      mesh%blocks = c_loc(c_blocks)
    end if
    call check_text(name, 'name', error)
    call check_text(axes, 'axes', error)
    call check_text(levels, 'levels', error)
    call check_text(indices, 'indices', error)
    call check_text(ghosts, 'ghosts', error)
    call check_text(node_ids, 'node_ids', error)
    call check_text(element_ids, 'element_ids', error)
    call check_text(splits, 'splits', error)
    if (error%code == penstock_ok) &
      code = c_set_mesh(self%handle, c_text(name), mesh, shape, optional_text(axes), optional_text(levels), &
                        optional_text(indices), optional_text(ghosts), optional_text(node_ids), &
                        optional_text(element_ids), optional_text(splits), error)
    call finish(error, stat, errmsg)
  end subroutine

  ! A field of a mesh. association: penstock_node (the default) or penstock_element. components: of a field that has
  ! several in one array. variable: its name on the stream, by default that of the field; with the same name and
  ! another variable, the field's next component. order: see the head of this file.
  subroutine add_field(self, mesh, name, dtype, field, association, components, units, variable, order, min_max, stat, &
                       errmsg)
    class(penstock_coprocessor), intent(in) :: self
    character(len=*), intent(in) :: mesh, name
    integer, intent(in) :: dtype
    type(penstock_field), intent(out) :: field
    integer, intent(in), optional :: association, components, order
    character(len=*), intent(in), optional :: units, variable
    logical, intent(in), optional :: min_max
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    field%dtype = dtype
    field%order = chosen(order, penstock_column)
    field%name = trim(name)
    call check_text(mesh, 'mesh', error)
    call check_text(name, 'name', error)
    call check_text(units, 'units', error)
    call check_text(variable, 'variable', error)
    if (error%code == penstock_ok) &
      code = c_field(self%handle, c_text(mesh), c_text(name), dtype, chosen(association, penstock_node), &
                     chosen(components, 1), optional_text(units), optional_text(variable), field%order, &
                     c_logical(min_max), field%id, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! A variable that the description of a mesh names: coordinates, connectivity, levels, ids. It is put as fields are.
  subroutine add_structure(self, mesh, variable, dtype, field, order, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    character(len=*), intent(in) :: mesh, variable
    integer, intent(in) :: dtype
    type(penstock_field), intent(out) :: field
    integer, intent(in), optional :: order
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    field%dtype = dtype
    field%order = chosen(order, penstock_column)
    field%name = trim(variable)
    call check_text(mesh, 'mesh', error)
    call check_text(variable, 'variable', error)
    if (error%code == penstock_ok) &
      code = c_structure(self%handle, c_text(mesh), c_text(variable), dtype, field%order, field%id, error)
    call finish(error, stat, errmsg)
  end subroutine

  integer(c_int) function chosen(given, otherwise)
    integer, intent(in), optional :: given
    integer, intent(in) :: otherwise
    chosen = otherwise
    if (present(given)) chosen = given
  end function

  ! A parameter that analyses may set: a real, an integer, a logical or a text. least, greatest: of numbers, in the type
  ! of value; without them there is no bound.
  subroutine declare(self, name, value, least, greatest, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(in) :: value
    class(*), intent(in), optional :: least, greatest
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    real(c_double) :: reals(3)
    integer(c_int64_t) :: integers(3)
    if (whole_in_c(name, 'name', error)) then
      reals(2:) = [-huge(reals), huge(reals)]
      integers(2:) = [-huge(integers), huge(integers)]
      select type (value)
      type is (logical)
        code = c_declare_bool(self%handle, c_text(name), c_logical(value), error)
      type is (character(len=*))
        if (whole_in_c(value, 'value', error)) code = c_declare_string(self%handle, c_text(name), c_text(value), error)
      class default
        if (all([is_real(value, reals(1)), is_real(least, reals(2)), is_real(greatest, reals(3))])) then
          code = c_declare_double(self%handle, c_text(name), reals(1), reals(2), reals(3), error)
        else if (all([is_integer(value, integers(1)), is_integer(least, integers(2)), &
                      is_integer(greatest, integers(3))])) then
          code = c_declare_int(self%handle, c_text(name), integers(1), integers(2), integers(3), error)
        else
          code = refuse(error, "'"//trim(name)//"': a parameter is a real, an integer, a logical or a text, "// &
                        'and its bounds are of its type')
        end if
      end select
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! out: the value, unchanged where it is not present.
  logical function is_real(value, out)
    class(*), intent(in), optional :: value
    real(c_double), intent(inout) :: out
    is_real = .true.
    if (.not. present(value)) return
    select type (value)
    type is (real(real32));  out = value
    type is (real(real64));  out = value
    class default;           is_real = .false.
    end select
  end function

  logical function is_integer(value, out)
    class(*), intent(in), optional :: value
    integer(c_int64_t), intent(inout) :: out
    is_integer = .true.
    if (.not. present(value)) return
    select type (value)
    type is (integer(int32));  out = value
    type is (integer(int64));  out = value
    class default;             is_integer = .false.
    end select
  end function

  ! The value of a parameter as of the last request, the same on all ranks: real(real64), an integer of 4 or 8 bytes, a
  ! logical, or a text, which is padded with blanks.
  subroutine read_value(self, name, value, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    character(len=*), intent(in) :: name
    class(*), intent(inout) :: value
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    type(c_ptr) :: text
    integer(c_int) :: code, number
    integer(c_int64_t) :: wide
    if (whole_in_c(name, 'name', error)) then
      select type (value)
      type is (real(real64))
        code = c_double_of(self%handle, c_text(name), value, error)
      type is (integer(int64))
        code = c_int_of(self%handle, c_text(name), value, error)
      type is (integer(int32))
        code = c_int_of(self%handle, c_text(name), wide, error)
        if (code == penstock_ok .and. abs(wide) > huge(value)) then
          code = refuse(error, "'"//trim(name)//"' has a value that needs an integer of 8 bytes")
        else if (code == penstock_ok) then
          value = int(wide, int32)
        end if
      type is (logical)
        code = c_bool_of(self%handle, c_text(name), number, error)
        if (code == penstock_ok) value = number /= 0
      type is (character(len=*))
        code = c_string_of(self%handle, c_text(name), text, error)
        if (code == penstock_ok) call copy_text(text, value)
      class default
        code = refuse(error, "'"//trim(name)//"': no parameter has a value of this type")
      end select
    end if
    call finish(error, stat, errmsg)

  contains

    subroutine copy_text(from, to)
      type(c_ptr), intent(in) :: from
      character(len=*), intent(out) :: to
      if (c_strlen(from) > len(to)) then
        code = refuse(error, "'"//trim(name)//"' has a longer text than there is room for")
      else
        to = fortran_text(from)
      end if
    end subroutine

  end subroutine

  ! Collective. Whether this cycle is to be published, which opens a step.
  subroutine request(self, cycle, time, wanted, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    integer, intent(in) :: cycle
    real(real64), intent(in) :: time
    logical, intent(out) :: wanted
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, answer
    answer = 0
    code = c_request(self%handle, int(cycle, c_int64_t), time, answer, error)
    wanted = answer /= 0
    call finish(error, stat, errmsg)
  end subroutine

  ! Whether somebody wants the field in this step. One that nobody wants may be put all the same; that does nothing.
  logical function wants(self, field, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    type(penstock_field), intent(in) :: field
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, answer
    answer = 0
    if (is_defined(field, error)) code = c_wants(self%handle, field%id, answer, error)
    wants = answer /= 0
    call finish(error, stat, errmsg)
  end function

  ! Puts the block of this rank; sections are not copied before. start, count: as for put of a writer. lend: values
  ! stays unchanged until coprocess has returned, which spares a copy. Fields of unstructured meshes, particles and amr
  ! are blocks of their own, without start.
  subroutine put(self, field, values, start, count, lend, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    type(penstock_field), intent(in) :: field
    class(*), intent(in), asynchronous :: values(..)
    type(*), intent(in), optional :: start(:), count(:)
    logical, intent(in), optional :: lend
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, dtype
    if (is_defined(field, error)) then
      dtype = known_type(values, field%name, error)
      if (dtype /= penstock_none) &
        code = c_put_field(self%handle, field%id, c_text(field%name), field%dtype, field%order, values, dtype, start, &
                           count, c_logical(lend), error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  logical function is_defined(field, error)
    type(penstock_field), intent(in) :: field
    type(c_error), intent(inout) :: error
    integer(c_int) :: code
    is_defined = field%id /= -1
    if (.not. is_defined) code = refuse(error, 'the field is not defined: call field or structure first')
  end function

  ! Publishes the step. It is over also when this fails. With engine insitu the analysis has used lent arrays.
  subroutine coprocess(self, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_coprocess(self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Gives the step up, on all ranks.
  subroutine abandon(self, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_abandon(self%handle, error)
    call finish(error, stat, errmsg)
  end subroutine

  subroutine read_statistics(self, statistics, stat, errmsg)
    class(penstock_coprocessor), intent(in) :: self
    type(penstock_coprocessor_statistics), intent(out) :: statistics
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    statistics%struct_size = c_sizeof(statistics)
    code = c_get_statistics(self%handle, statistics, error)
    call finish(error, stat, errmsg)
  end subroutine

  ! Collective. Closes the channel, which waits for readers, then waits for the analysis of this process, and frees.
  ! status: the exit status of that. The channel is closed even when this fails.
  subroutine finalize(self, timeout_ms, status, stat, errmsg)
    class(penstock_coprocessor), intent(inout) :: self
    integer, intent(in), optional :: timeout_ms
    integer, intent(out), optional :: status, stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, ended
    ended = 0
    code = c_finalize_channel(self%handle, c_timeout(timeout_ms), ended, error)
    if (present(status)) status = ended
    call free(self)
    call finish(error, stat, errmsg)
  end subroutine

  ! Closes after a failure, and frees: readers get penstock_writer_lost. Not collective; waits for no reader.
  subroutine lose(self, stat, errmsg)
    class(penstock_coprocessor), intent(inout) :: self
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    code = c_lose_channel(self%handle, error)
    call free(self)
    call finish(error, stat, errmsg)
  end subroutine

  subroutine free(self)
    class(penstock_coprocessor), intent(inout) :: self
    call c_destroy_coprocessor(self%handle)
    self%handle = c_null_ptr
  end subroutine

end module
