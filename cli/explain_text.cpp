// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "explain.hpp"
#include "table.hpp"

namespace dosa::cli {
namespace {

using Align = Table::Align;

enum Role { kZeroWeight, kRetained, kProjected, kAggregateOne, kAggregateTwo, kIgnored };

std::string number(double value) { return fmt::format("{:.4g}", value); }

std::string threshold_text(float value) { return std::isfinite(value) ? number(value) : "none"; }

std::string heads_text(int count) { return fmt::format("{} head{}", count, count == 1 ? "" : "s"); }

std::string task_text(const Explanation& found) {
  const std::int64_t visible = found.end - found.start;
  std::string text = fmt::format("Row {} of {}\n\n", found.row, found.trace);
  text += fmt::format("The query sees {} keys, [{}, {}), and selects the {} best.",
                      grouped(visible), found.start, found.end,
                      grouped(std::min<std::int64_t>(visible, found.problem.topk)));
  if (visible <= found.problem.topk) {
    return text + "\nThose are all of them: nothing has to be scored or rejected.\n";
  }
  return text +
         fmt::format(" The last of these has the score {}.\n", number(found.stats.kth_score));
}

std::string method_text(const Explanation& found) {
  const dosa_certificate& certificate = found.certificate;
  std::string text = fmt::format(
      "\nHow keys are rejected\n\n"
      "  A score is the sum over {} heads of weight * max(0, query . key), times the key's scale.\n"
      "  Most keys can be ruled out for less: a bound that is never below the score takes {} dot\n"
      "  products per key instead of {}.\n\n",
      found.problem.num_heads, certificate.screening_rows, found.problem.num_heads);
  text += fmt::format("    bound =  {} computed as in the score (\"retained\")\n",
                      heads_text(certificate.num_retained));
  text +=
      fmt::format("           + the most that {} with positive weight can add (\"projected\")\n",
                  heads_text(certificate.num_omitted_positive));
  text += fmt::format(
      "           - what {} with negative weight take away at the least (\"aggregate\")\n",
      heads_text(certificate.num_aggregated));
  text += fmt::format(
      "           - nothing for {} with negative weight that may be silent (\"ignored\")\n",
      heads_text(certificate.num_ignored));
  text +=
      "           + what rounding can do to all of this (\"guard\")\n\n"
      "  A key whose bound is below the K-th best score seen so far (the threshold) is certain "
      "not\n"
      "  to be selected and is rejected unseen. Every other key is scored with all heads, so the\n"
      "  selection is the same as if all keys had been scored.\n";
  return text;
}

double strength(const dosa_certificate& certificate, int head) {
  return std::fabs(double{certificate.weight[head]}) * double{certificate.norm[head]};
}

std::string head_note(const Explanation& found, int head) {
  const dosa_certificate& certificate = found.certificate;
  if (certificate.role[head] == kProjected) {
    const int anchor = certificate.anchor[head];
    return anchor < 0 ? "bounded by its norm alone" : fmt::format("leans on head {}", anchor);
  }
  if (certificate.role[head] != kRetained) {
    return "";
  }
  std::string carried;
  int count = 0;
  for (int other = 0; other < found.problem.num_heads; ++other) {
    if (certificate.role[other] == kProjected && certificate.anchor[other] == head) {
      carried += fmt::format("{}{}", carried.empty() ? "" : ", ", other);
      ++count;
    }
  }
  if (count == 0) {
    return "";
  }
  return fmt::format("weight becomes {} to carry head{} {}",
                     number(certificate.folded_weight[head]), count == 1 ? "" : "s", carried);
}

std::string heads_table(const Explanation& found) {
  const dosa_certificate& certificate = found.certificate;
  std::vector<int> order(static_cast<std::size_t>(found.problem.num_heads));
  std::iota(order.begin(), order.end(), 0);
  const auto role_order = [&](int head) {
    const bool zero = certificate.role[head] == kZeroWeight;
    return zero ? int{kIgnored} + 1 : int{certificate.role[head]};
  };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return role_order(a) != role_order(b) ? role_order(a) < role_order(b)
                                          : strength(certificate, a) > strength(certificate, b);
  });
  double total = 0;
  for (const int head : order) {
    total += strength(certificate, head);
  }
  Table table({Align::kLeft, Align::kRight, Align::kLeft, Align::kRight, Align::kRight,
               Align::kRight, Align::kRight, Align::kLeft});
  table.add({"", "head", "role", "weight", "|query|", "strength", "active", ""});
  for (const int head : order) {
    const double active = double{certificate.active[head]};
    table.add({"", std::to_string(head), role_name(certificate.role[head]),
               number(certificate.weight[head]), number(certificate.norm[head]),
               percent(strength(certificate, head), total),
               std::isnan(active) ? "-" : fmt::format("{:.0f} %", 100 * active),
               head_note(found, head)});
  }
  return "\nHeads\n\n" + table.text() +
         "\n  strength: share of |weight| |query|, the most the head can matter\n"
         "  active:   how often its dot product is positive, on a sample of keys\n";
}

std::string bound_table(const Explanation& found) {
  Table table({Align::kLeft, Align::kRight, Align::kRight, Align::kRight, Align::kRight,
               Align::kRight, Align::kRight, Align::kRight});
  std::vector<std::string> header = {"  quantile over keys"};
  std::vector<std::string> scores = {"  score"};
  std::vector<std::string> slacks = {"  bound - score (slack)"};
  for (std::size_t i = 0; i < kQuantiles.size(); ++i) {
    header.push_back(fmt::format("{} %", kQuantiles[i]));
    scores.push_back(number(found.score_quantiles[i]));
    slacks.push_back(number(found.slack_quantiles[i]));
  }
  table.add(header);
  table.add(scores);
  table.add(slacks);
  return fmt::format(
      "\nHow tight the bound is\n\n{}\n"
      "  Each bound includes an allowance of {} and a guard of {},\n"
      "  both times the key's norm and scale.\n",
      table.text(), number(found.certificate.allowance), number(found.certificate.guard));
}

std::string outcome_text(const Explanation& found) {
  const auto visible = static_cast<double>(found.end - found.start);
  const auto share = [&](std::int64_t count) {
    return percent(static_cast<double>(count), visible);
  };
  Table table({Align::kLeft, Align::kRight, Align::kRight});
  const auto line = [&](const std::string& what, std::int64_t count) {
    table.add({"  " + what, grouped(count), share(count)});
  };
  line("keys that are not among the K best", found.outside);
  if (std::isfinite(found.certificate.threshold)) {
    line(fmt::format("bound below the first threshold, {}", number(found.certificate.threshold)),
         found.under_threshold);
  }
  line(fmt::format("bound below the K-th score, {}", number(found.stats.kth_score)),
       found.under_kth);
  line("no bound (scale, NaN or Inf): always scored", found.unbounded);
  table.skip();
  line("this row run alone: bounds computed", found.stats.screened);
  line("this row run alone: keys scored with all heads", found.stats.fully_scored);
  std::string text = "\nWhat is rejected\n\n" + table.text();
  if (found.stats.screened == 0) {
    return text + "\n  No bound was used: for this row it is cheaper to score every key.\n";
  }
  return text + fmt::format("\n  The threshold rose from {} to {} in {} round{}.\n",
                            threshold_text(found.stats.first_threshold),
                            threshold_text(found.stats.last_threshold), found.stats.rounds,
                            found.stats.rounds == 1 ? "" : "s");
}

}  // namespace

const char* role_name(int role) {
  switch (role) {
    case kRetained:
      return "retained";
    case kProjected:
      return "projected";
    case kAggregateOne:
      return "aggregate";
    case kAggregateTwo:
      return "aggregate 2";
    case kIgnored:
      return "ignored";
    default:
      return "zero weight";
  }
}

std::string explanation_text(const Explanation& found) {
  std::string text = task_text(found);
  if (found.end - found.start <= found.problem.topk) {
    return text;
  }
  if (found.certificate.valid == 0) {
    return text +
           "\nNo bound holds for this row: a query code or a weight is NaN or infinite.\n"
           "Every key is scored.\n";
  }
  return text + method_text(found) + heads_table(found) + bound_table(found) + outcome_text(found);
}

}  // namespace dosa::cli
