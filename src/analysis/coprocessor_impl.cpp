#include "analysis/coprocessor_impl.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

#include "analysis/python_part.hpp"
#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "penstock/error.hpp"
#include "penstock/interrupt.hpp"
#include "stream/api/open.hpp"
#include "stream/api/patience.hpp"

namespace penstock {
namespace {

using Decision = Coprocessor::Impl::Decision;

bool has_live_readers(const StreamOptions& options) {
  const auto engine = base::writers_engine(options.engine);
  return engine == "direct" || engine == "insitu";
}

CoprocessorOptions checked(CoprocessorOptions options) {
  base::check_coprocessor(options);
  return options;
}

// The stream's options as code gives them, so that the simulation does what it should while the analysis is busy.
StreamOptions with_wait(StreamOptions stream, Wait wait, const std::string& engine) {
  if (engine == "file") return stream;  // which takes every step
  if (wait == Wait::drop) stream.when_full = WhenFull::discard_newest;
  if (wait == Wait::latest) stream.when_full = WhenFull::discard_oldest;
  if (wait == Wait::automatic && !base::is_given(stream, "queue_steps")) stream.queue_steps = 1;
  return stream;
}

// ------ what rank 0 tells the others: a decision, or why there is none

constexpr std::size_t rule_bytes = analysis::max_rules / 8;
constexpr std::size_t decision_bytes = 2 + rule_bytes;

std::string encoded(const Decision& decision) {
  std::string out(decision_bytes, '\0');
  out[0] = 'd';
  out[1] = static_cast<char>(decision.skip);
  for (std::size_t i = 0; i < analysis::max_rules; ++i)
    if (decision.rules[i]) out[2 + i / 8] = static_cast<char>(out[2 + i / 8] | (1 << (i % 8)));
  return out + decision.request;
}

std::string encoded(const Error& error) {
  return "e" + std::to_string(static_cast<int>(error.code())) + ":" + error.what();
}

Decision decoded(const std::string& text) {
  if (text.starts_with('e')) {
    int code = static_cast<int>(Errc::internal);
    const auto colon = std::min(text.find(':'), text.size() - 1);
    std::from_chars(text.data() + 1, text.data() + colon, code);
    throw Error(static_cast<Errc>(code), text.substr(colon + 1)).in("rank 0");
  }
  if (!text.starts_with('d') || text.size() < decision_bytes)
    throw Error(Errc::internal, "the cohort's broadcast lost what rank 0 said");
  Decision decision{static_cast<Coprocessor::Impl::Skip>(text[1]), {}, text.substr(decision_bytes)};
  for (std::size_t i = 0; i < analysis::max_rules; ++i) decision.rules[i] = (text[2 + i / 8] >> (i % 8) & 1) != 0;
  return decision;
}

// Everything, at every cycle: what is asked for until a request comes.
std::vector<analysis::Rule> everything() {
  return {{.all = true, .fields = {}, .when = analysis::Program({{}, {}, {analysis::Program::Code::equal}})}};
}

}  // namespace

namespace analysis {

const PythonPart& python_part() {
  static const auto& part = static_cast<const PythonPart&>(  // tried again after an error
      base::load_part({"an analysis in the simulation's process", "libpenstock_python_program.so",
                       "penstock_python_program_part",
                       "install Python's embedding library (Debian: libpython3-dev) and build Penstock again",
                       &penstock_python_program_part}));
  return part;
}

}  // namespace analysis

Coprocessor::Impl::Impl(const Context& context, std::string_view name, std::shared_ptr<Cohort> ranks,
                        CoprocessorOptions in_code, StreamOptions stream_in_code, StartAnalysis start_program)
    : channel(name),
      cohort(std::move(ranks)),
      options(checked(context.coprocessor_options_for(name, std::move(in_code)))),
      stream(context.options_for(
          name, with_wait(stream_in_code, options.wait, context.options_for(name, stream_in_code).engine))),
      start(std::move(start_program)),
      writer(context.create_stream(name, cohort, with_wait(stream_in_code, options.wait, stream.engine))),
      fields(static_cast<std::uint64_t>(cohort->size())),
      rules_(everything()) {
  if (is_root() && stream.engine != "file")
    listener = std::make_unique<analysis::RequestListener>(context, channel + ".requests");
}

void Coprocessor::Impl::check_usable() const {
  if (origin.inherited()) origin.check("channel " + channel);
  if (ended) throw Error(Errc::wrong_state, "channel " + channel + " is finalized");
}

void Coprocessor::Impl::start_analysis() {
  if (std::exchange(started_, true) || stream.engine != "insitu" || options.pipelines.empty()) return;
  auto arguments = options.pipelines;
  for (const auto& word :
       {std::string("--channel"), channel, std::string("--output"), options.output, std::string("--rank"),
        std::to_string(cohort->rank()), std::string("--size"), std::to_string(cohort->size())})
    arguments.push_back(word);
  stream::on_every_rank(*cohort, [&] {
    if (start) {
      program = start(arguments);
      return;
    }
    arguments.insert(arguments.begin(), {"-m", "penstock.analysis"});
    program = analysis::python_part().start(arguments);
  });
}

// ---------------------------------------------------------------------------------------------------------- request()

std::optional<WriteStep> Coprocessor::Impl::request(std::int64_t cycle, double time) {
  if (in_step) throw Error(Errc::wrong_state, "channel " + channel + " has a step open");
  const auto& meshes = fields.json();  // which may throw, on all ranks alike
  start_analysis();
  ++counted.requests;
  std::optional<WriteStep> begun;
  const auto decision = agree(cycle, time, begun);
  if (!count(decision.skip)) return std::nullopt;
  if (is_root() && !meshes.empty()) writer.put_attribute("meshes", Attribute::of(meshes));
  if (!begun) begun = writer.begin_step();
  if (begun->dropped()) {
    begun->end();
    ++counted.skipped_dropped;
    return std::nullopt;
  }
  gather_wanted(decision.rules);
  cycle_ = cycle;
  time_ = time;
  in_step = true;
  return begun;
}

Decision Coprocessor::Impl::agree(std::int64_t cycle, double time, std::optional<WriteStep>& begun) {
  const bool alone = cohort->size() == 1;
  if (!is_root()) {
    auto decision = decoded(cohort->broadcast("", 0));
    if (!decision.request.empty()) adopt(analysis::parse_request(decision.request));
    return decision;
  }
  const auto tell = [&](const Error& error) {  // the others wait for it
    told_failure_ = true;
    if (!alone) cohort->broadcast(encoded(error), 0);
  };
  Decision decision;
  try {
    decision = decide(cycle, time, begun);
  } catch (const Error& error) {
    tell(error);
    throw;
  } catch (const std::exception& error) {
    tell(Error(Errc::internal, error.what()));
    throw;
  }
  if (!alone) cohort->broadcast(encoded(decision), 0);
  return decision;
}

// Rank 0: what is new, and whether this cycle is published. begun: the step, where that could only be known by beginning it.
Decision Coprocessor::Impl::decide(std::int64_t cycle, double time, std::optional<WriteStep>& begun) {
  Decision decision;
  await_first_demand();
  hear(decision);
  if ((counted.requests - 1) % options.every != 0) {
    decision.skip = Skip::every;
    return decision;
  }
  decision.rules = rules_that_hold(cycle, time);
  if (decision.rules.none()) decision.skip = Skip::trigger;
  else if (options.wait == Wait::automatic && stream.engine != "file" && !is_ready(begun))
    decision.skip = Skip::not_ready;
  return decision;
}

bool Coprocessor::Impl::expects_demand() const {
  return listener && options.wait == Wait::block && stream.rendezvous_readers > 0 && !options.pipelines.empty() &&
         has_live_readers(stream);
}

void Coprocessor::Impl::await_first_demand() {
  if (demand_met_) return;
  std::optional<int> ended_with;
  const auto give_up = [&] {
    if (!program) return interrupted();
    try {
      ended_with = program->wait(Timeout(0));
      return true;
    } catch (const Error& error) {
      if (error.code() != Errc::timeout) throw;
    }
    return interrupted();
  };
  const auto heard = [&](base::Deadline deadline) {
    return listener->wait(deadline, give_up) || ended_with.has_value();
  };
  const auto awaited = [&] { return stream::Awaited{listener->awaited(), stream::Awaited::Whom::readers}; };
  const bool chosen = stream.step_timeout_ms != 0 || base::is_given(stream, "open_timeout_ms");
  const auto wait = [&] {
    if (chosen) return heard(base::Deadline(Timeout(stream.open_timeout_ms)));
    return stream::attempt_patiently(channel, {}, 0, heard, awaited);
  };
  if (expects_demand() && (!wait() || ended_with)) {
    if (ended_with)
      throw Error(Errc::peer_lost, "channel " + channel + ": the analysis ended with status " +
                                       std::to_string(*ended_with) + " before its first request");
    throw Error(Errc::timeout, "channel " + channel + ": no analysis has asked for anything within open_timeout_ms=" +
                                   std::to_string(stream.open_timeout_ms) + "; awaited: " + listener->awaited());
  }
  demand_met_ = true;
}

bool Coprocessor::Impl::is_ready(std::optional<WriteStep>& begun) {
  if (has_live_readers(stream) && writer.statistics().peers.empty()) return false;
  begun = writer.try_begin_step(Timeout(0));
  return begun.has_value();
}

// Takes what came, if it can be read; what cannot is logged, and the demand before stays in force.
void Coprocessor::Impl::hear(Decision& decision) {
  auto text = listener ? listener->take() : std::nullopt;
  if (!text) return;
  try {
    adopt(analysis::parse_request(*text));
    decision.request = std::move(*text);
    refused_.clear();
  } catch (const std::exception& error) {  // whatever it asks for, the simulation goes on
    ++counted.demands_refused;
    if (std::exchange(refused_, error.what()) != error.what())
      base::log(base::Level::warn, "a request is refused", {{"channel", channel}, {"why", error.what()}});
  }
}

void Coprocessor::Impl::adopt(analysis::Request request) {
  const auto before = steering.refused();
  rules_ = std::move(request.rules);
  resolved_ = 0;
  steering.apply(request.steering);
  ++counted.demands;
  counted.demand_number = request.number;
  if (is_root() && steering.refused() != before)
    for (const auto& [name, why] : steering.refused())
      base::log(base::Level::warn, "a steering value is refused",
                {{"channel", channel}, {"parameter", name}, {"why", why}});
}

Coprocessor::Impl::Rules Coprocessor::Impl::rules_that_hold(std::int64_t cycle, double time) const {
  Rules holding;
  for (std::size_t i = 0; i < rules_.size(); ++i) holding[i] = rules_[i].when.holds(static_cast<double>(cycle), time);
  return holding;
}

void Coprocessor::Impl::gather_wanted(const Rules& rules) {
  if (std::exchange(resolved_, fields.version()) != fields.version()) {
    wanted_by_.clear();
    for (const auto& rule : rules_) wanted_by_.push_back(fields.wanted(rule));
  }
  wanted.assign(fields.size(), 0);
  for (std::size_t i = 0; i < wanted_by_.size(); ++i)
    for (std::size_t f = 0; rules[i] && f < wanted.size(); ++f) wanted[f] |= wanted_by_[i][f];
}

// False: the cycle is skipped.
bool Coprocessor::Impl::count(Skip skip) {
  switch (skip) {
    case Skip::no: return true;
    case Skip::every: ++counted.skipped_every; break;
    case Skip::trigger: ++counted.skipped_trigger; break;
    case Skip::not_ready: ++counted.skipped_not_ready; break;
  }
  return false;
}

// ---------------------------------------------------------------------------------------------------------- the step

std::string Coprocessor::Impl::acknowledgement() const {
  using OrderedJson = nlohmann::ordered_json;
  const auto json_of = [](const analysis::Value& value) {
    return std::visit([](const auto& v) { return OrderedJson(v); }, value);
  };
  OrderedJson values = OrderedJson::object(), parameters = OrderedJson::object();
  for (const auto& [name, parameter] : steering.parameters()) {
    values[name] = json_of(parameter.value);
    OrderedJson declared{{"type", analysis::type_of(parameter.initial)}, {"default", json_of(parameter.initial)}};
    if (parameter.least) declared["min"] = json_of(*parameter.least);
    if (parameter.greatest) declared["max"] = json_of(*parameter.greatest);
    parameters[name] = std::move(declared);
  }
  const auto now = statistics();
  OrderedJson out{{"version", 1},
                  {"number", now.demand_number},
                  {"steering", std::move(values)},
                  {"parameters", std::move(parameters)},
                  {"skipped",
                   {{"every", now.skipped_every},
                    {"trigger", now.skipped_trigger},
                    {"not_ready", now.skipped_not_ready},
                    {"dropped", now.skipped_dropped},
                    {"replaced", now.replaced}}}};
  if (!steering.refused().empty()) out["refused"] = steering.refused();
  if (!refused_.empty()) out["refused_request"] = refused_;
  return out.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);  // it quotes what a peer has sent
}

analysis::ChannelFields::Variable& Coprocessor::Impl::reshaped(WriteStep& step, std::uint32_t field) {
  auto& variable = fields.variable(field);
  if (variable.global && !variable.reshaped && variable.shape != variable.shape_now) {
    step.set_shape(variable.id, variable.shape);
    variable.reshaped = true;
  }
  return variable;
}

CoprocessorStatistics Coprocessor::Impl::statistics() const {
  auto out = counted;
  if (options.wait == Wait::latest && is_root())
    out.replaced = std::max(writer.statistics().steps_dropped, out.skipped_dropped) - out.skipped_dropped;
  return out;
}

void Coprocessor::Impl::close_step(bool published) {
  in_step = false;
  if (published) ++counted.steps;
  for (std::uint32_t i = 0; i < fields.size(); ++i) {
    auto& variable = fields.variable(i);
    if (std::exchange(variable.reshaped, false) && published) variable.shape_now = variable.shape;
  }
}

// What goes with every step; from rank 0.
void Coprocessor::Impl::put_metadata(WriteStep& step) {
  if (!is_root()) return;
  step.put_attribute("cycle", Attribute::of(cycle_));
  step.put_attribute("time", Attribute::of(time_));
  step.put_attribute("coprocessing", Attribute::of(acknowledgement()));
}

// ---------------------------------------------------------------------------------------------------------- the end

int Coprocessor::Impl::wait_for_program(Timeout deadline) {
  if (!program) return 0;
  try {
    return program->wait(deadline == configured ? stream::chosen_or_usual(stream.close_timeout_ms) : deadline);
  } catch (const Error& error) {
    if (error.code() == Errc::timeout)
      static_cast<void>(program.release());  // its thread goes on; nothing waits for it any more
    throw;
  }
}

int Coprocessor::Impl::end(Timeout deadline, bool lost) {
  if (std::exchange(ended, true)) return status;
  std::exception_ptr failed;
  const auto attempt = [&](auto action) {
    try {
      action();
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  };
  attempt([&] { lost ? writer.lose() : writer.close(deadline); });
  if (lost && is_root() && !told_failure_)
    attempt([&] { cohort->leave(encoded(Error(Errc::peer_lost, "channel " + channel + ": this rank has failed"))); });
  attempt([&] { status = wait_for_program(deadline); });
  listener.reset();
  if (failed) std::rethrow_exception(failed);
  return status;
}

}  // namespace penstock
