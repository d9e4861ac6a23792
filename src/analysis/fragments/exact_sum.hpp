// Sums of doubles without error, rounded once. The result does not depend on the order in which values are added, nor on how they
// were divided among sums that are added later.
//
// Source: J. R. Shewchuk, Adaptive precision floating-point arithmetic and fast robust geometric predicates, 1997.
// A value; any thread. A sum beyond the range of doubles is infinite; infinities of both signs, and NaN, make NaN.
#pragma once

#include <cmath>
#include <limits>
#include <span>
#include <utility>
#include <vector>

namespace penstock::analysis {

class ExactSum {
 public:
  void add(double value) {
    if (!terms_.empty() && !std::isfinite(terms_[0])) {
      terms_[0] += value;
      return;
    }
    std::size_t kept = 0;
    for (double term : terms_) {
      if (std::fabs(value) < std::fabs(term)) std::swap(value, term);
      const double sum = value + term;
      const double error = term - (sum - value);  // exact: value is not smaller than term
      if (error != 0 && std::isfinite(sum)) terms_[kept++] = error;
      value = sum;
    }
    if (!std::isfinite(value)) kept = 0;
    terms_.resize(kept);
    if (value != 0) terms_.push_back(value);
  }
  void add(const ExactSum& other) {
    for (const double term : other.terms_) add(term);
  }

  // To the nearest double; of two, to the even one.
  double rounded() const {
    if (terms_.empty()) return 0;
    std::size_t left = terms_.size();
    double sum = terms_[--left], error = 0;
    while (left > 0 && error == 0) {
      const double larger = sum, term = terms_[--left];
      sum = larger + term;
      error = term - (sum - larger);
    }
    // A tie was rounded to the even neighbour: the terms below it decide.
    if (left > 0 && error != 0 && (error < 0) == (terms_[left - 1] < 0)) {
      const double other = sum + 2 * error;
      if (2 * error == other - sum) sum = other;
    }
    return std::isnan(sum) ? std::numeric_limits<double>::quiet_NaN() : sum;
  }

  // The sum is that of these, which do not overlap: the smallest first.
  std::span<const double> terms() const { return terms_; }

 private:
  std::vector<double> terms_;
};

}  // namespace penstock::analysis
