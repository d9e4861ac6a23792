! Streams of steps: the Fortran API. It offers what penstock/penstock.h offers, with the same verbs as type-bound
! procedures.
!
!   type(penstock_context) :: context
!   type(penstock_writer) :: writer
!   call context%create()
!   call context%create_stream(writer, 'heat')
!   do step = 1, steps
!     call writer%begin_step()
!     call writer%put('T', T)
!     call writer%end_step()
!   end do
!   call writer%close()
!   call context%destroy()
!
! Conventions:
!
! 1. Arrays are in Fortran's order, and indices count from 1. T(nx, ny) is an array of shape (nx, ny) for every
!    reader, in any language, and its element T(i, j) is element [i-1, j-1] in C and Python: nothing is reversed and
!    nothing is copied to another order, for a variable says its own (column-major). Readers get any variable, also
!    one in row-major order, as an array of the same shape and in their own order.
! 2. Values are integers of 1, 2, 4 or 8 bytes, reals and complex numbers of single and double precision, logicals of
!    1 or 4 bytes, and text; scalars and arrays of up to eight dimensions, sections with strides too. They are dummy
!    arguments `class(*), dimension(..)`: one procedure serves all types and ranks, a section is not copied, and a
!    type that is none of these is an error at run time. Unsigned integers, and floats of 16 bits, are carried in the
!    integer of the same size; a writer says so with define.
! 3. stat= and errmsg= are as in Fortran's own statements: without stat=, an error ends the program with error stop
!    and the message. stat is 0 or a penstock_err_*.
! 4. What a correct program meets (no step yet, end of stream, writer lost) is an outcome, not an error.
! 5. Names lose the blanks at their end, and so does text, which comes back padded with blanks. A NUL ends them; one
!    that anything but NULs and blanks follows is an error.
! 6. Timeouts are in milliseconds: penstock_configured (the default) is the stream's own, penstock_forever waits for
!    ever.
! 7. A context, writer or reader is a handle: a copy of it is the same one. destroy and close free it.
! 8. A writer or reader is used by one thread at a time.
module penstock
  use, intrinsic :: iso_c_binding, only: c_int, c_null_ptr, c_ptr
  use penstock_calls, only: c_context_create, c_context_destroy, c_create_stream, c_error, c_open_stream, c_text, &
    c_variables_create, finish, optional_text, penstock_cohort, penstock_statistics, whole_in_c
  use penstock_constants
  use penstock_reading, only: penstock_reader
  use penstock_writing, only: penstock_writer
  implicit none
  private :: c_int, c_null_ptr, c_ptr, c_context_create, c_context_destroy, c_create_stream, c_error, c_open_stream, &
    c_text, c_variables_create, finish, optional_text, whole_in_c

  ! Configuration and the library's thread.
  type :: penstock_context
    type(c_ptr) :: handle = c_null_ptr
  contains
    procedure :: create => context_create
    procedure :: destroy => context_destroy
    procedure :: create_stream
    procedure :: open_stream
  end type

contains

  ! options: 'directory=/run/penstock,listen=127.0.0.1'; the keys are those of ContextOptions in penstock/options.hpp.
  subroutine context_create(self, options, stat, errmsg)
    class(penstock_context), intent(inout) :: self
    character(len=*), intent(in), optional :: options
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    if (whole_in_c(options, 'options', error)) then
      code = c_context_create(optional_text(options), self%handle, error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! Streams keep what they need of it.
  subroutine context_destroy(self)
    class(penstock_context), intent(inout) :: self
    call c_context_destroy(self%handle)
    self%handle = c_null_ptr
  end subroutine

  ! Collective. options: 'queue_steps=2,when_full=discard_oldest'; the keys are those of StreamOptions, a word without
  ! '=' names the engine. penstock.yaml and the environment have the last word. Returns at once; the first begin_step
  ! waits for readers.
  subroutine create_stream(self, writer, name, options, cohort, stat, errmsg)
    class(penstock_context), intent(in) :: self
    class(penstock_writer), intent(inout) :: writer
    character(len=*), intent(in) :: name
    character(len=*), intent(in), optional :: options
    type(penstock_cohort), intent(in), optional :: cohort
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code, ranks
    if (whole_in_c(name, 'name', error)) then
      if (whole_in_c(options, 'options', error)) &
        code = c_create_stream(self%handle, c_text(name), cohort, optional_text(options), writer%handle, error)
    end if
    if (error%code == penstock_ok) then
      ranks = 1
      if (present(cohort)) ranks = cohort%size
      writer%variables = c_variables_create(ranks)
    end if
    call finish(error, stat, errmsg)
  end subroutine

  ! Collective. Waits until the stream exists and its writer has admitted this cohort. name: a stream's, or an address
  ! as printed by `penstock stream ls --address`.
  subroutine open_stream(self, reader, name, options, cohort, stat, errmsg)
    class(penstock_context), intent(in) :: self
    class(penstock_reader), intent(inout) :: reader
    character(len=*), intent(in) :: name
    character(len=*), intent(in), optional :: options
    type(penstock_cohort), intent(in), optional :: cohort
    integer, intent(out), optional :: stat
    character(len=*), intent(inout), optional :: errmsg
    type(c_error) :: error
    integer(c_int) :: code
    if (whole_in_c(name, 'name', error)) then
      if (whole_in_c(options, 'options', error)) &
        code = c_open_stream(self%handle, c_text(name), cohort, optional_text(options), reader%handle, error)
    end if
    call finish(error, stat, errmsg)
  end subroutine

end module
