// SPDX-License-Identifier: Apache-2.0
#include "io/output_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>

#include "io/error.hpp"

namespace dosa::io {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxAttempts = 1000;
constexpr ::mode_t kNewFileMode = 0666;
constexpr ::mode_t kPermissionBits = 07777;

// Names that a signal handler has to remove: it may neither lock nor allocate.
constexpr int kMaxUncommitted = 8;
std::array<std::atomic<const char*>, kMaxUncommitted> uncommitted{};

int register_uncommitted(const char* path) {
  for (int slot = 0; slot < kMaxUncommitted; ++slot) {
    const char* empty = nullptr;
    if (uncommitted[static_cast<std::size_t>(slot)].compare_exchange_strong(empty, path)) {
      return slot;
    }
  }
  return -1;
}

void forget_uncommitted(int slot) {
  if (slot >= 0) {
    uncommitted[static_cast<std::size_t>(slot)].store(nullptr);
  }
}

extern "C" void on_signal(int signal_number) {
  for (std::atomic<const char*>& path : uncommitted) {
    const char* name = path.exchange(nullptr);
    if (name != nullptr) {
      ::unlink(name);
    }
  }
  std::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

void sync_directory(const fs::path& directory) {
  const int fd = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);  // some file systems refuse it; the file itself is safe by now
    ::close(fd);
  }
}

}  // namespace

OutputFile::OutputFile(const std::string& path) : shown_(path), target_(path) {
  std::error_code error;
  if (path.empty()) {
    fail(ENOENT, "the name of a file");
  }
  if (fs::is_symlink(path, error)) {
    target_ = fs::canonical(path, error).string();
    if (error) {
      fail(error.value(), "a link to a file");
    }
  }
  struct stat status {};
  const bool exists = ::stat(target_.c_str(), &status) == 0;
  if (exists && !S_ISREG(status.st_mode)) {
    throw Error(printable(shown_), S_ISDIR(status.st_mode) ? "a directory" : "a special file",
                "a regular file or a new name");
  }
  if (exists && ::access(target_.c_str(), W_OK) != 0) {
    fail(errno, "a file that can be written");
  }
  const fs::path directory = fs::path(target_).parent_path();
  const std::string stem = (directory / ("." + fs::path(target_).filename().string())).string();
  for (int attempt = 0; fd_ < 0 && attempt < kMaxAttempts; ++attempt) {
    temporary_ = stem + "." + std::to_string(::getpid()) + "-" + std::to_string(attempt) + ".tmp";
    // Before the file exists, or a signal in between would leave it behind.
    slot_ = register_uncommitted(temporary_.c_str());
    fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kNewFileMode);
    const int error_number = errno;
    if (fd_ < 0) {
      forget_uncommitted(slot_);
    }
    if (fd_ < 0 && error_number != EEXIST) {
      fail(error_number, "a file that can be written");
    }
  }
  if (fd_ < 0) {
    fail(EEXIST, "a file that can be written");
  }
  if (exists && ::fchmod(fd_, status.st_mode & kPermissionBits) != 0) {
    const int error_number = errno;
    ::close(fd_);
    ::unlink(temporary_.c_str());
    forget_uncommitted(slot_);
    fail(error_number, "a file whose permissions can be kept");
  }
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
  if (!temporary_.empty()) {
    ::unlink(temporary_.c_str());
    forget_uncommitted(slot_);
  }
}

void OutputFile::reserve(std::uint64_t bytes) {
  if (bytes == 0) {
    return;
  }
  // The size is changed as well, so that a limit on it shows now; commit() cuts off the rest.
  const int result = ::fallocate(fd_, 0, 0, static_cast<::off_t>(bytes));
  if (result != 0 && (errno == ENOSPC || errno == EFBIG || errno == EDQUOT)) {
    fail(errno, "room for " + std::to_string(bytes) + " bytes");
  }
}

void OutputFile::commit(std::vector<Tensor> tensors, const Metadata& metadata) {
  const std::string header = encode_header(tensors, metadata);
  write_all(header.data(), header.size());
  std::size_t size = header.size();
  for (const Tensor& tensor : tensors) {
    write_all(tensor.data.data(), tensor.data.size());
    size += tensor.data.size();
  }
  finish(size);
}

void OutputFile::commit(std::string_view text) {
  write_all(text.data(), text.size());
  finish(text.size());
}

/// Cuts off what was reserved in excess, and gives the complete file its name.
void OutputFile::finish(std::size_t size) {
  if (::ftruncate(fd_, static_cast<::off_t>(size)) != 0 || ::fsync(fd_) != 0) {
    fail(errno, "a complete write");
  }
  const int closed = ::close(fd_);
  fd_ = -1;
  if (closed != 0) {
    fail(errno, "a complete write");
  }
  if (::rename(temporary_.c_str(), target_.c_str()) != 0) {
    fail(errno, "a file that can be replaced");
  }
  forget_uncommitted(slot_);
  temporary_.clear();
  const fs::path directory = fs::path(target_).parent_path();
  sync_directory(directory.empty() ? fs::path(".") : directory);
}

void OutputFile::write_all(const void* data, std::size_t size) {
  constexpr std::size_t kMostPerCall = std::size_t{1} << 30;  // the kernel stops short of 2 GiB
  const char* next = static_cast<const char*>(data);
  while (size > 0) {
    const ::ssize_t written = ::write(fd_, next, std::min(size, kMostPerCall));
    if (written < 0 && errno == EINTR) {
      continue;
    }
    if (written < 0) {
      fail(errno, "a complete write");
    }
    next += written;
    size -= static_cast<std::size_t>(written);
  }
}

void OutputFile::fail(int error_number, const std::string& expected) const {
  throw Error(printable(shown_), system_text(error_number), expected);
}

void remove_uncommitted_on_signals() {
  for (const int signal_number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action {};
    ::sigaction(signal_number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) {
      continue;  // as nohup and background shells ask for
    }
    action.sa_handler = on_signal;
    ::sigemptyset(&action.sa_mask);
    action.sa_flags = 0;
    ::sigaction(signal_number, &action, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace dosa::io
