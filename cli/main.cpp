// SPDX-License-Identifier: Apache-2.0
#include "command_line.hpp"
#include "io/output_file.hpp"

int main(int argc, char** argv) {
  dosa::io::remove_uncommitted_on_signals();
  return dosa::cli::run_command_line(argc, argv);
}
