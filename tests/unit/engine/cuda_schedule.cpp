// SPDX-License-Identifier: Apache-2.0
// The rounds in which the device visits keys, and which way a call takes by its shape.
#include "engine/cuda_schedule.hpp"

#include <gtest/gtest.h>

namespace dosa::engine {
namespace {

TEST(DeviceRounds, VisitEveryUnitOnce) {
  for (const int units : {1, 31, 32, 33, 64, 100, 512, 513, 1055, 2048, 4096, 16383}) {
    const int most = std::min(units, kFirstUnits);
    int done = 0;
    for (UnitRange range = next_dense_round(0, most); range.begin < range.end;
         range = next_dense_round(range.end, most)) {
      EXPECT_EQ(range.begin, done);
      done = range.end;
    }
    for (UnitRange range = next_screened_round(done, units); range.begin < range.end;
         range = next_screened_round(range.end, units)) {
      EXPECT_EQ(range.begin, done);
      EXPECT_LE(range.end - range.begin, kMostScreenedUnits) << "the masks have no room for more";
      EXPECT_LE(range.end, 2 * range.begin) << "the context at most doubles";
      done = range.end;
    }
    EXPECT_EQ(done, units);
  }
}

TEST(DeviceRounds, ReachEveryPlaceWhereAnEstimateIsRaised) {
  for (int units = kFirstUnits; units <= 2048; ++units) {
    if (!raises_estimate(units)) continue;
    int done = kFirstUnits;
    while (done < units) done = next_screened_round(done, 4096).end;
    EXPECT_EQ(done, units);
  }
}

TEST(DeviceWay, StoresScoresOfShortContexts) {
  EXPECT_TRUE(worth_storing(0, 32));
  EXPECT_TRUE(worth_storing(64 * 1024, 32));
  EXPECT_FALSE(worth_storing(256 * 1024, 32));
  EXPECT_TRUE(worth_storing(128 * 1024, 64)) << "scoring takes a larger share";
  EXPECT_FALSE(worth_storing(256 * 1024, 64));
}

TEST(DeviceWay, AsksScoutsWhereTheyAreCheap) {
  EXPECT_FALSE(worth_scouting(4096, 128 * 1024, 32));
  EXPECT_TRUE(worth_scouting(16384, 256 * 1024, 32));
  EXPECT_TRUE(worth_scouting(4096, 512 * 1024, 32)) << "a long context";
  EXPECT_FALSE(worth_scouting(64, 1024 * 1024, 32)) << "few rows";
  EXPECT_FALSE(worth_scouting(1 << 20, 64 * 1024, 32)) << "a short context";
  EXPECT_FALSE(worth_scouting(0, 0, 32));
}

}  // namespace
}  // namespace dosa::engine
