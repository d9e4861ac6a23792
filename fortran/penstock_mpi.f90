! The MPI cohort for Fortran. It is compiled with the program, with the program's MPI: the library itself never links
! MPI.
!
!   use mpi_f08
!   use penstock_mpi
!   call context%create_stream(writer, 'heat', cohort=penstock_mpi_cohort(MPI_COMM_WORLD%mpi_val))
!
! penstock_mpi_cohort is collective: it duplicates the communicator. The duplicate belongs to the one stream the
! cohort is given to and is freed with it, which must happen before MPI_Finalize.
module penstock_mpi
  use, intrinsic :: iso_c_binding, only: c_int
  use penstock, only: penstock_cohort
  implicit none
  private
  public :: penstock_mpi_cohort

  interface
    integer(c_int) function c_cohort(comm, cohort) bind(c, name='penstock_fortran_mpi_cohort')
      import
      integer(c_int), value :: comm
      type(penstock_cohort), intent(inout) :: cohort
    end function
  end interface

contains

  ! comm: a communicator of the module mpi, or the component mpi_val of one of mpi_f08. An error of MPI ends the
  ! program.
  function penstock_mpi_cohort(comm) result(cohort)
    integer, intent(in) :: comm
    type(penstock_cohort) :: cohort
    if (c_cohort(comm, cohort) /= 0) error stop 'penstock: MPI could not duplicate the communicator'
  end function

end module
