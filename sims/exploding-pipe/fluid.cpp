#include "fluid.hpp"

namespace exploding_pipe {
namespace {

// One side of a face, and its part of the fan of waves.
struct Side {
  const State& primitive;
  State conserved;
  double density, speed, pressure;

  Side(const Mixture& mixture, const State& of, int axis)
      : primitive(of),
        conserved(mixture.conserved(of)),
        density(std::max(of[mass1] + of[mass2], Mixture::least_density)),
        speed(of[along_x + axis]),
        pressure(of[exploding_pipe::pressure]) {}

  // outer: the speed of the wave that bounds the fan on this side; contact: that of the contact, if this side's fan holds the face.
  State flux(int axis, double outer, double contact, bool in_fan, double& face_speed) const {
    State out;
    for (int c = 0; c < components; ++c) out[c] = conserved[c] * speed;
    out[along_x + axis] += pressure;
    out[energy] += pressure * speed;
    face_speed = speed;
    if (in_fan) {
      const double squeeze = (outer - speed) / (outer - contact);
      State star = conserved;
      for (int c = mass1; c <= along_z; ++c) star[c] *= squeeze;
      star[along_x + axis] = density * squeeze * contact;
      star[energy] =
          squeeze * (conserved[energy] + (contact - speed) * (density * contact + pressure / (outer - speed)));
      for (int c = 0; c < fraction; ++c) out[c] += outer * (star[c] - conserved[c]);
      face_speed = speed + outer * (squeeze - 1);
    }
    out[fraction] = conserved[fraction] * face_speed;
    return out;
  }
};

}  // namespace

State Mixture::flux(const State& left_state, const State& right_state, int axis, double& face_speed) const {
  const Side left(*this, left_state, axis), right(*this, right_state, axis);
  const double left_sound = sound(left_state), right_sound = sound(right_state);
  const double slowest = std::min(left.speed - left_sound, right.speed - right_sound);
  const double fastest = std::max(left.speed + left_sound, right.speed + right_sound);
  const double left_flow = left.density * (slowest - left.speed), right_flow = right.density * (fastest - right.speed);
  const double contact =
      (right.pressure - left.pressure + left.speed * left_flow - right.speed * right_flow) / (left_flow - right_flow);
  if (contact >= 0) return left.flux(axis, slowest, contact, slowest < 0, face_speed);
  return right.flux(axis, fastest, contact, fastest > 0, face_speed);
}

}  // namespace exploding_pipe
