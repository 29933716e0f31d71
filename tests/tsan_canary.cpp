// SPDX-License-Identifier: Apache-2.0
// Adds to one variable from several threads without protection: a race that must be reported.
#include <cstdio>

int main() {
  int sum = 0;
#pragma omp parallel for num_threads(4)
  for (int i = 0; i < 100000; ++i) {
    sum += i;
  }
  std::printf("%d\n", sum);
  return 0;
}
