// SPDX-License-Identifier: Apache-2.0
//
// Running rapidcheck properties under GoogleTest with a stated number of cases and a fixed seed,
// so that a run can be repeated. DOSA_TEST_SCALE=n multiplies the number of cases and moves the
// seed; nightly runs set it.
#pragma once

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <cstdlib>
#include <sstream>
#include <string>
#include <utility>

namespace dosa::oracle {

/// 1, or what DOSA_TEST_SCALE says.
inline int test_scale() {
  const char* text = std::getenv("DOSA_TEST_SCALE");
  const int scale = text == nullptr ? 1 : std::atoi(text);
  return scale < 1 ? 1 : scale;
}

template <typename Property>
void check_cases(int cases, Property&& property) {
  const auto* info = ::testing::UnitTest::GetInstance()->current_test_info();
  rc::detail::TestMetadata metadata;
  metadata.id = std::string(info->test_suite_name()) + "/" + info->name();
  metadata.description = info->name();
  rc::detail::TestParams params;
  params.maxSuccess = cases * test_scale();
  params.seed = static_cast<std::uint64_t>(test_scale()) * 0x9e3779b97f4a7c15ULL;
  const auto result = rc::detail::checkTestable(std::forward<Property>(property), metadata, params);
  if (result.template is<rc::detail::SuccessResult>()) return;
  std::ostringstream text;
  rc::detail::printResultMessage(result, text);
  FAIL() << text.str();
}

/// An integer in [-bound, bound]; shrinks towards 0.
inline rc::Gen<int> small_integer(int bound) {
  return rc::gen::map(rc::gen::inRange(0, 2 * bound + 1),
                      [](int i) { return i % 2 == 0 ? i / 2 : -(i + 1) / 2; });
}

}  // namespace dosa::oracle
