! The constants of penstock/penstock.h, for the module penstock.
module penstock_constants
  implicit none

  ! Codes of errors, as in penstock/error.hpp.
  integer, parameter :: penstock_ok = 0, penstock_err_invalid_argument = 1, penstock_err_wrong_state = 2, &
    penstock_err_not_found = 3, penstock_err_unknown_option = 4, penstock_err_unsupported = 5, &
    penstock_err_step_too_large = 20, penstock_err_step_voided = 21, penstock_err_step_gone = 22, &
    penstock_err_timeout = 40, penstock_err_end_of_stream = 41, penstock_err_writer_lost = 42, &
    penstock_err_stream_closed = 43, penstock_err_peer_lost = 60, penstock_err_authentication = 61, &
    penstock_err_protocol = 62, penstock_err_already_exists = 70, penstock_err_overloaded = 71, &
    penstock_err_pool_full = 72, penstock_err_stale_view = 73, penstock_err_cancelled = 74, &
    penstock_err_forbidden = 75, penstock_err_system = 80, penstock_err_memory = 81, penstock_err_internal = 82

  integer, parameter :: penstock_none = 0, penstock_boolean = 1, penstock_int8 = 2, penstock_int16 = 3, &
    penstock_int32 = 4, penstock_int64 = 5, penstock_uint8 = 6, penstock_uint16 = 7, penstock_uint32 = 8, &
    penstock_uint64 = 9, penstock_float16 = 10, penstock_bfloat16 = 11, penstock_float32 = 12, penstock_float64 = 13, &
    penstock_complex64 = 14, penstock_complex128 = 15, penstock_string = 16

  integer, parameter :: penstock_global_array = 0, penstock_local_array = 1, penstock_global_value = 2, &
    penstock_local_value = 3
  integer, parameter :: penstock_row = 0, penstock_column = 1
  integer, parameter :: penstock_ready = 0, penstock_not_ready = 1, penstock_end_of_stream = 2, &
    penstock_writer_lost = 3

  integer, parameter :: penstock_max_dims = 8
  ! penstock_forever is the largest default integer: a timeout in ms of that is one of weeks.
  integer, parameter :: penstock_configured = -1, penstock_forever = huge(0)

end module
