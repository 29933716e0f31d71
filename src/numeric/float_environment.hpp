// SPDX-License-Identifier: Apache-2.0
// The caller's thread may flush subnormals or round in another direction (some frameworks switch
// that on); scores and bounds are defined without it. One guard per thread that computes.
#ifndef DOSA_NUMERIC_FLOAT_ENVIRONMENT_HPP
#define DOSA_NUMERIC_FLOAT_ENVIRONMENT_HPP

#include <cfenv>

namespace dosa {

class FloatEnvironment {
 public:
  FloatEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~FloatEnvironment() { std::fesetenv(&saved_); }
  FloatEnvironment(const FloatEnvironment&) = delete;
  FloatEnvironment& operator=(const FloatEnvironment&) = delete;

 private:
  std::fenv_t saved_{};
};

}  // namespace dosa

#endif  // DOSA_NUMERIC_FLOAT_ENVIRONMENT_HPP
