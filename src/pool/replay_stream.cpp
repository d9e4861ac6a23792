#include "pool/replay_stream.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <optional>
#include <set>

#include "base/clock.hpp"
#include "base/config.hpp"
#include "base/log.hpp"
#include "penstock/stream.hpp"
#include "pool/stream_trace.hpp"
#include "storage/checksum.hpp"

namespace penstock::pool {

namespace {

constexpr Timeout patience(60'000);  // for what came to be when it was recorded
constexpr std::size_t longest_name = 128;
constexpr std::uint64_t longest_string = 16 << 20;
constexpr std::uint64_t most_steps = 100'000;  // of a stream, written before anything is done again
constexpr Timeout continue_check_period(100);  // whether to go on

StreamOptions parse_options(const std::string& yaml) {
  StreamOptions options = base::from_yaml(yaml, [](const Error&) {});  // of another version: they keep their defaults
  options.engine = "pool";
  options.trace = "off";
  return options;
}

const std::string& text_of(const ReplayOperation& operation, std::uint32_t number) { return operation.text(number); }
const std::string& arguments_of(const ReplayOperation& operation) {
  return text_of(operation, operation.record.arguments);
}
std::string stream_of(const ReplayOperation& operation) {
  return operation.keys.empty() ? std::string() : operation.keys[0].row;
}
std::string variable_of(const ReplayOperation& operation) {
  return operation.keys.empty() ? std::string() : operation.keys[0].column;
}

// How long to wait for what was there in time, or was not.
Timeout wait_of(const TraceRecord& record) {
  if (record.outcome == Errc::timeout || record.timeout == configured) return record.timeout;
  return std::max(record.timeout, patience);
}

Errc code_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::ready: return Errc::ok;
    case Outcome::not_ready: return Errc::timeout;
    case Outcome::end_of_stream: return Errc::end_of_stream;
    case Outcome::writer_lost: return Errc::writer_lost;
  }
  return Errc::internal;
}

template <class Step>
Step& open_step(std::optional<Step>& step) {
  if (!step) throw Error(Errc::wrong_state, "no step is open");
  return *step;
}

// Readers are told that it is lost, as they are when an exception ends the writer.
void lose(std::optional<Writer>& writer) {
  struct Unwinding {};
  try {
    const Writer gone = std::move(*writer);
    writer.reset();
    throw Unwinding();
  } catch (const Unwinding&) {
  }
}

}  // namespace

// Where the lanes that stand for the ranks of a cohort meet. Each collective is a round.
class StreamReplay::Meeting {
 public:
  void add() { ++size_; }
  int size() const { return size_; }
  std::vector<std::string> exchange(int rank, std::uint64_t round, const std::string& bytes) {
    std::unique_lock lock(mutex_);
    auto& meeting = rounds_[round];
    meeting.resize(static_cast<std::size_t>(size_));
    meeting[static_cast<std::size_t>(rank)] = bytes;
    const auto whole = [&] { return std::ranges::all_of(meeting, [](const auto& one) { return one.has_value(); }); };
    changed_.notify_all();
    if (!changed_.wait_for(lock, patience, whole))
      throw Error(Errc::timeout, "not every rank of the recorded cohort came to open or close the stream");
    std::vector<std::string> all;
    for (const auto& one : meeting) all.push_back(*one);
    return all;
  }

 private:
  int size_ = 0;
  std::mutex mutex_;  // guards rounds_
  std::condition_variable changed_;
  std::map<std::uint64_t, std::vector<std::optional<std::string>>> rounds_;
};

class StreamReplay::Rank final : public Cohort {
 public:
  explicit Rank(Place place) : place_(std::move(place)) {}
  int rank() const override { return place_.rank; }
  int size() const override { return place_.meeting->size(); }
  std::string broadcast(const std::string& bytes, int root) override {
    return place_.meeting->exchange(place_.rank, round_++, place_.rank == root ? bytes : "")
        .at(static_cast<std::size_t>(root));
  }
  std::vector<std::string> gather(const std::string& bytes, int root) override {
    auto all = place_.meeting->exchange(place_.rank, round_++, bytes);
    return place_.rank == root ? std::move(all) : std::vector<std::string>();
  }

 private:
  const Place place_;
  std::uint64_t round_ = 0;
};

struct StreamReplay::Handle {
  struct Variable {
    std::uint32_t id = 0;
    DescribedVariable is;
  };
  std::optional<Writer> writer;
  std::optional<WriteStep> written;
  std::map<std::string, Variable> variables;
  std::vector<std::byte> bytes;                  // of whatever is put
  std::vector<std::vector<std::byte>> outgrown;  // what these were before; lent, perhaps, until the step ends

  std::optional<Reader> reader;
  std::optional<ReadStep> read;
  std::vector<std::vector<std::byte>> gotten;  // buffers of gets; the first `getting` are in use
  std::size_t getting = 0;
  std::vector<Views> views;  // of the step

  bool early = false;  // the step is there though the recorded call had given up: the next begin has it

  ~Handle() {
    views.clear();
    read.reset();
    end_write();
  }
  const void* filled(std::uint64_t count) {
    if (bytes.size() < count) {
      outgrown.push_back(std::exchange(bytes, std::vector<std::byte>(count)));
      fill_replayed({"stream", ""}, bytes);
    }
    return bytes.data();
  }
  void end_read() {
    views.clear();
    getting = 0;
  }
  void end_write() {
    written.reset();
    outgrown.clear();
  }
};

StreamReplay::StreamReplay(const Context& context, const Timeline& timeline, std::string pool, std::string run)
    : context_(context), timeline_(timeline), pool_(std::move(pool)), run_(std::move(run)) {
  find_cohorts();
}

StreamReplay::~StreamReplay() = default;

// The ranks of a cohort have recorded its number. Where they could not open it they have none: then the k-th time that a rank
// opened a stream in vain is the k-th cohort's.
void StreamReplay::find_cohorts() {
  struct Name {
    Verb verb;
    std::string stream;
    std::uint64_t ranks, number;
    bool open;
    auto operator<=>(const Name&) const = default;
  };
  std::map<std::tuple<Verb, std::string, std::uint64_t, std::uint64_t>, std::uint64_t> failed;  // by ..., rank
  std::map<Name, std::vector<std::pair<std::uint64_t, Client>>> cohorts;  // ranks and who they are
  for (const auto& item : timeline_.items) {
    const TraceRecord& record = timeline_.record(item);
    if (!is_of_stream(record.verb)) continue;
    last_[{item.process, record.client}] = &record;
    if (record.verb != Verb::write_open && record.verb != Verb::read_open) continue;
    const Trace& trace = timeline_.processes[item.process];
    const std::string stream = record.keys.empty() ? "" : trace.key(record.keys[0]).row;
    const auto rank = record.tag.value_or(0);
    const auto number = record.version ? *record.version : failed[{record.verb, stream, record.count, rank}]++;
    cohorts[{record.verb, stream, record.count, number, record.version.has_value()}].push_back(
        {rank, {item.process, record.client}});
  }
  for (auto& [name, ranks] : cohorts) {
    std::ranges::stable_sort(ranks, {}, &std::pair<std::uint64_t, Client>::first);
    const auto meeting = std::make_shared<Meeting>();
    for (const auto& [rank, client] : ranks) {
      places_[client] = {meeting, meeting->size()};
      meeting->add();
    }
  }
}

// What does not fit is told apart by its hash.
std::string StreamReplay::name_of(const std::string& recorded) const {
  std::string name = "replay-" + run_ + "-" + recorded;
  if (name.size() <= longest_name) return name;
  const std::string hash = fmt::format("-{:016x}", storage::checksum(std::as_bytes(std::span(recorded))));
  return name.substr(0, longest_name - hash.size()) + hash;
}

StreamOptions StreamReplay::options_of(const ReplayOperation& operation) const {
  StreamOptions options = parse_options(arguments_of(operation));
  if (!pool_.empty()) options.pool = pool_;
  return options;
}

void StreamReplay::note_made(const std::string& pool, const std::string& stream) {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::ranges::any_of(made_, [&](const Made& one) { return one.pool == pool && one.stream == stream; });
  if (!known) made_.push_back({pool, stream});
}

std::vector<StreamReplay::Made> StreamReplay::made() const {
  const std::lock_guard lock(mutex_);
  return made_;
}

StreamReplay::Handle& StreamReplay::handle(const ReplayOperation& operation) {
  const std::lock_guard lock(mutex_);
  auto& handle = handles_[{operation.item.process, operation.record.client}];
  if (!handle) handle = std::make_unique<Handle>();
  return *handle;
}

void StreamReplay::prepare(base::Deadline deadline, const ReplayControl& control) {
  const auto over = [&] { return deadline.passed() || control.stop; };
  struct Found {
    StreamOptions options;
    std::map<std::string, DescribedVariable> variables;
    std::set<std::uint64_t> steps;
    bool lost = false;
  };
  std::map<std::string, Found> streams;
  std::set<std::string> written;
  for (const auto& item : timeline_.items) {
    const TraceRecord& record = timeline_.record(item);
    if (!is_of_stream(record.verb) || record.keys.empty()) continue;
    const Trace& trace = timeline_.processes[item.process];
    const Key key = trace.key(record.keys[0]);
    if (record.verb == Verb::write_open) written.insert(key.row);
    if (record.outcome != Errc::ok) continue;
    if (record.verb == Verb::read_open) streams[key.row].options = parse_options(trace.texts[record.arguments]);
    if (record.verb == Verb::read_begin && record.version) streams[key.row].steps.insert(*record.version);
    if ((record.verb == Verb::read_get || record.verb == Verb::read_view) && record.function != 0)
      streams[key.row].variables[key.column] = parse_variable(trace.texts[record.function]);
  }
  for (auto& [stream, found] : streams) {
    if (written.contains(stream)) continue;
    if (over()) return;
    const std::uint64_t first = found.steps.empty() ? 0 : *found.steps.begin();
    const std::uint64_t count = found.steps.empty() ? 0 : *found.steps.rbegin() - first + 1;
    if (found.steps.size() > count || count > most_steps)
      throw Error(Errc::invalid_argument,
                  fmt::format("the recording reads steps {} to {} of stream {}, which would have to be written first; "
                              "that is done for {} at most",
                              first, *found.steps.rbegin(), stream, most_steps));
    StreamOptions options;
    options.engine = "pool";
    options.trace = "off";
    options.pool = pool_.empty() ? found.options.pool : pool_;
    options.resume = first == 0 ? "no" : std::to_string(first);
    note_made(options.pool, name_of(stream));
    Writer writer = context_.create_stream(name_of(stream), solo(), options);
    Handle handle;
    for (auto& [name, variable] : found.variables) {
      if (variable.options.kind != Kind::global_array) variable.shape = {};
      handle.variables[name] = {writer.define(name, variable.dtype, variable.shape, variable.options), variable};
    }
    for (std::uint64_t step = 0; step < count; ++step) {
      const base::Deadline awaited(patience);
      std::optional<WriteStep> begun;
      while (!begun) {
        if (over()) return;
        begun = awaited.passed() ? writer.begin_step(Timeout(0)) : writer.try_begin_step(continue_check_period);
      }
      WriteStep& writing = *begun;
      for (const auto& [name, variable] : handle.variables) {
        const auto bytes = element_count(variable.is.shape) * size_of(variable.is.dtype);
        if (variable.is.dtype == DType::string) writing.put_string(variable.id, "");
        else if (variable.is.options.kind == Kind::local_array)
          writing.put(variable.id, Box{{0}, {0}}, handle.filled(1));
        else writing.put_whole(variable.id, handle.filled(bytes));
      }
      writing.end();
    }
    writer.close(patience);
  }
}

ReplayOutcome StreamReplay::run(const ReplayOperation& operation) {
  ReplayOutcome outcome;
  Handle& handle = this->handle(operation);
  const Client client{operation.item.process, operation.record.client};
  try {
    const Verb verb = operation.record.verb;
    if (verb == Verb::write_open || verb == Verb::read_open) open(handle, operation);
    else if (verb < Verb::read_open) write(handle, operation, outcome);
    else read(handle, operation, outcome);
  } catch (const Error& error) {
    outcome.code = error.code();
    outcome.message = error.what();
  } catch (const std::exception& error) {
    outcome.code = Errc::internal;
    outcome.message = error.what();
  }
  const auto last = last_.find(client);
  const bool closed = operation.record.verb == Verb::write_close || operation.record.verb == Verb::read_close;
  if (last == last_.end() || last->second != &operation.record || closed) return outcome;
  try {
    handle.end_read();
    handle.read.reset();
    handle.reader.reset();
    if (handle.writer) {
      if (handle.written) handle.written->abandon();
      handle.end_write();
      lose(handle.writer);
    }
  } catch (const std::exception& error) {
    base::log(base::Level::warn, "a replayed stream did not end well", {{"why", std::string_view(error.what())}});
  }
  return outcome;
}

void StreamReplay::open(Handle& handle, const ReplayOperation& operation) {
  const bool writes = operation.record.verb == Verb::write_open;
  StreamOptions options = options_of(operation);
  base::drop_idle(options, writes ? base::Side::writer : base::Side::reader);  // in effect there, from a file perhaps
  const std::string stream = name_of(stream_of(operation));
  const auto cohort = std::make_shared<Rank>(places_.at({operation.item.process, operation.record.client}));
  if (writes) {
    note_made(options.pool, stream);
    handle.writer.emplace(context_.create_stream(stream, cohort, options));
  } else {
    handle.reader.emplace(context_.open_stream(stream, cohort, options));
  }
}

void StreamReplay::write(Handle& handle, const ReplayOperation& operation, ReplayOutcome& outcome) {
  const TraceRecord& record = operation.record;
  if (!handle.writer) throw Error(Errc::wrong_state, "the stream is not open");
  Writer& writer = *handle.writer;
  const std::string name = variable_of(operation), &arguments = arguments_of(operation);
  const auto variable = [&]() -> Handle::Variable {
    const auto known = handle.variables.find(name);
    return known == handle.variables.end() ? Handle::Variable{~std::uint32_t{0}, {DType::uint8, {}, {}}}
                                           : known->second;
  };
  switch (record.verb) {
    case Verb::write_define: {
      const auto is = parse_variable(arguments);
      handle.variables[name] = {writer.define(name, is.dtype, is.shape, is.options), is};
      break;
    }
    case Verb::write_attribute:
      if (handle.written) handle.written->put_attribute(name, parse_attribute(arguments));
      else writer.put_attribute(name, parse_attribute(arguments));
      break;
    case Verb::write_begin:
      if (std::exchange(handle.early, false)) break;
      handle.end_write();
      handle.written = writer.try_begin_step(wait_of(record));
      if (!handle.written) outcome.code = Errc::timeout;
      handle.early = handle.written && record.outcome == Errc::timeout;
      break;
    case Verb::write_shape: {
      const Dims shape = parse_shape(arguments);
      open_step(handle.written).set_shape(variable().id, shape);
      handle.variables[name].is.shape = shape;
      break;
    }
    case Verb::write_put: {
      WriteStep& step = open_step(handle.written);
      const auto [id, is] = variable();
      const std::string& how = text_of(operation, record.function);
      if (how == "string") {
        const auto size = std::min(record.sizes.empty() ? 0 : record.sizes[0], longest_string);
        step.put_string(id, std::string(size, 'x'));
        outcome.bytes = size;
        break;
      }
      const Box box = how == "whole" ? Box{} : parse_box(arguments);
      outcome.bytes = element_count(how == "whole" ? is.shape : box.count) * size_of(is.dtype);
      const void* data = handle.filled(outcome.bytes);
      if (how == "whole") step.put_whole(id, data);
      else if (how == "lend") step.lend(id, box, data);
      else if (how == "span") {
        const auto span = step.put_span(id, box);
        std::copy_n(static_cast<const std::byte*>(data), std::min<std::uint64_t>(span.size(), outcome.bytes),
                    span.begin());
      } else {
        step.put(id, box, data);
      }
      break;
    }
    case Verb::write_end:
      open_step(handle.written).end();
      handle.end_write();
      break;
    case Verb::write_abandon:
      open_step(handle.written).abandon();
      handle.end_write();
      break;
    case Verb::write_close:
      handle.end_write();
      if (record.count == 1) lose(handle.writer);
      else writer.close(wait_of(record));
      break;
    default: throw Error(Errc::protocol, "not a writer's call");
  }
}

void StreamReplay::read(Handle& handle, const ReplayOperation& operation, ReplayOutcome& outcome) {
  const TraceRecord& record = operation.record;
  if (!handle.reader) throw Error(Errc::wrong_state, "the stream is not open");
  Reader& reader = *handle.reader;
  const auto selection = [&] { return parse_selection(arguments_of(operation)); };
  const auto bytes_of = [](ReadStep& step, const VariableInfo& info, const Selection& part) {
    return element_count(step.shape_of(info.id, part)) * size_of(info.dtype);
  };
  switch (record.verb) {
    case Verb::read_seek: reader.seek(record.version.value_or(0)); break;
    case Verb::read_steps: reader.steps(); break;
    case Verb::read_begin: {
      if (std::exchange(handle.early, false)) break;
      handle.end_read();
      handle.read.reset();
      auto begun = reader.try_begin_step(wait_of(record));
      outcome.code = code_of(begun.outcome);
      handle.read = std::move(begun.step);
      handle.early = handle.read && record.outcome == Errc::timeout;
      break;
    }
    case Verb::read_get: {
      ReadStep& step = open_step(handle.read);
      const auto& info = step.variable(variable_of(operation));
      const Selection part = selection();
      outcome.bytes = bytes_of(step, info, part);
      if (handle.getting == handle.gotten.size()) handle.gotten.emplace_back();
      auto& buffer = handle.gotten[handle.getting++];
      if (buffer.size() < outcome.bytes) buffer.resize(outcome.bytes);
      step.get(info.id, part, buffer.data());
      break;
    }
    case Verb::read_view: {
      ReadStep& step = open_step(handle.read);
      const auto& info = step.variable(variable_of(operation));
      const Selection part = selection();
      outcome.bytes = bytes_of(step, info, part);
      handle.views.push_back(step.view(info.id, part));
      break;
    }
    case Verb::read_strings: {
      ReadStep& step = open_step(handle.read);
      for (const auto& string : step.read_strings(step.variable(variable_of(operation)).id))
        outcome.bytes += string.size();
      break;
    }
    case Verb::read_wait:
      open_step(handle.read).wait(wait_of(record));
      handle.getting = 0;
      break;
    case Verb::read_end:
      handle.views.clear();
      open_step(handle.read).end();
      handle.read.reset();
      handle.end_read();
      break;
    case Verb::read_close:
      handle.end_read();
      handle.read.reset();
      reader.close();
      break;
    default: throw Error(Errc::protocol, "not a reader's call");
  }
}

}  // namespace penstock::pool
