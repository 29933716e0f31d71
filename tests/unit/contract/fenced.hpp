// SPDX-License-Identifier: Apache-2.0
//
// Memory that ends at a page that may not be touched, or begins behind one.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

namespace dosa::oracle {

/// Bytes with a forbidden page right behind them, or right before.
class Fenced {
 public:
  Fenced(const void* source, std::size_t bytes, bool at_end) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t body = (bytes + page - 1) / page * page;
    length_ = body + 2 * page;
    base_ = static_cast<std::uint8_t*>(
        mmap(nullptr, length_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    mprotect(base_ + page, body, PROT_READ | PROT_WRITE);
    data_ = at_end ? base_ + page + body - bytes : base_ + page;
    if (source != nullptr) std::memcpy(data_, source, bytes);
  }
  ~Fenced() { munmap(base_, length_); }
  Fenced(const Fenced&) = delete;
  Fenced& operator=(const Fenced&) = delete;

  template <typename T>
  [[nodiscard]] T* as() const {
    return reinterpret_cast<T*>(data_);
  }

 private:
  std::uint8_t* base_ = nullptr;
  std::uint8_t* data_ = nullptr;
  std::size_t length_ = 0;
};

template <typename T>
Fenced fence(const std::vector<T>& values, bool at_end) {
  return {values.data(), values.size() * sizeof(T), at_end};
}

}  // namespace dosa::oracle
