// SPDX-License-Identifier: Apache-2.0
// The command, in this process; the input is its arguments, one a line. It must end with one of its
// exit codes: 0 and nothing on stderr, 1 for a wrong answer (there is none), or 2 and one line that
// no terminal takes orders from. It runs in a folder of its own.
#include "command_line.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "bytes.hpp"
#include "io/gen_exact.hpp"
#include "io/output_file.hpp"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#include <sanitizer/common_interface_defs.h>
#define DOSA_KEEP_REPORTS(fd) __sanitizer_set_report_fd(reinterpret_cast<void*>(fd))
#endif
#endif
#ifndef DOSA_KEEP_REPORTS
#define DOSA_KEEP_REPORTS(fd) static_cast<void>(fd)
#endif

namespace {

using dosa::fuzz::require;

/// A word without paths out of the folder, and without numbers of more than three digits unless
/// they fit no type: sizes in between take minutes and show nothing.
std::string tame(std::string_view word) {
  constexpr std::size_t kMostDigits = 3;
  constexpr std::size_t kFitsNoType = 20;
  std::string result;
  for (std::size_t at = 0; at < word.size();) {
    const std::size_t end = std::min(word.find_first_not_of("0123456789", at), word.size());
    if (end == at) {
      result += word[at] == '/' || word[at] == '\0' ? '_' : word[at];
      ++at;
      continue;
    }
    const std::size_t digits = end - at;
    result += word.substr(at, digits >= kFitsNoType ? digits : std::min(digits, kMostDigits));
    at = end;
  }
  return result;
}

/// One word a line.
std::vector<std::string> words_of(std::string_view text) {
  constexpr std::size_t kMost = 40;
  std::vector<std::string> words = {"dosa"};
  while (!text.empty() && words.size() < kMost) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    words.push_back(tame(text.substr(0, end)));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return words;
}

/// A folder with a small trace and files that are none; the process works in it.
void enter_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "dosa-fuzz-XXXXXX").string();
  require(::mkdtemp(name.data()) != nullptr);
  static const std::string kFolder = name;
  require(std::atexit([] {
            std::error_code ignored;
            std::filesystem::remove_all(kFolder, ignored);
          }) == 0);
  require(::chdir(name.c_str()) == 0);
  dosa::io::ExactShape shape;
  shape.num_queries = 3;
  shape.num_keys = 300;
  shape.num_heads = 4;
  shape.head_dim = 32;
  dosa::io::OutputFile file("trace");
  file.commit(dosa::io::make_int(shape).tensors(), {});
  std::fclose(std::fopen("empty", "w"));
  std::FILE* broken = std::fopen("broken", "w");
  std::fputs("\x10\1\1\1\1\1\1\1{}", broken);
  std::fclose(broken);
}

/// Standard output and error go to files while it lives.
class Captured {
 public:
  Captured() {
    std::fflush(stdout);
    for (int fd : {1, 2}) {
      saved_[fd] = ::dup(fd);
      const int file = ::open(fd == 1 ? ".stdout" : ".stderr", O_RDWR | O_CREAT | O_TRUNC, 0600);
      ::dup2(file, fd);
      ::close(file);
    }
    DOSA_KEEP_REPORTS(static_cast<std::intptr_t>(saved_[2]));
  }
  Captured(const Captured&) = delete;
  Captured& operator=(const Captured&) = delete;
  ~Captured() {
    std::fflush(stdout);
    for (int fd : {1, 2}) {
      ::dup2(saved_[fd], fd);
      ::close(saved_[fd]);
    }
    DOSA_KEEP_REPORTS(std::intptr_t{2});
  }

  [[nodiscard]] static std::string error_text() {
    std::string text(1 << 14, '\0');
    const int file = ::open(".stderr", O_RDONLY);
    const ::ssize_t length = ::read(file, text.data(), text.size());
    ::close(file);
    text.resize(length < 0 ? 0 : static_cast<std::size_t>(length));
    return text;
  }

 private:
  int saved_[3] = {};
};

void check_error(int code, const std::string& text) {
  if (code == 0) return require(text.empty());
  require(code == 2 && text.rfind("dosa: ", 0) == 0 && text.back() == '\n');
  for (const char c : text.substr(0, text.size() - 1)) {
    require(static_cast<unsigned char>(c) >= ' ' && c != '\x7f');
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const bool kEntered = (enter_folder(), true);
  static_cast<void>(kEntered);
  const std::vector<std::string> words = words_of({reinterpret_cast<const char*>(data), size});
  const auto has = [&words](const char* word) {
    return std::find(words.begin(), words.end(), word) != words.end();
  };
  if (has("doctor") && !has("--help")) return 0;  // takes a second whatever else is said
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  int code = 0;
  {
    const Captured captured;
    code = dosa::cli::run_command_line(static_cast<int>(argv.size()), argv.data());
  }
  check_error(code, Captured::error_text());
  return 0;
}
