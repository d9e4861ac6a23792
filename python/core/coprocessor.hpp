// The coprocessor at the border. A step is part of its coprocessor here, as with writers.
#pragma once

#include "core.hpp"
#include "penstock/coprocessor.hpp"

namespace penstock::python {

class PyCoprocessor {
 public:
  // options: of coprocessors and streams, as text. start: a function of Python that starts an analysis in this process.
  PyCoprocessor(std::shared_ptr<Context> context, const std::string& channel, nb::object cohort,
                const nb::dict& options, nb::object start);
  ~PyCoprocessor();

  const std::string& name() const { return name_; }
  void add_pipeline(const std::string& path);
  void set_mesh(const std::string& name, const std::string& type, const nb::dict& description);
  std::uint32_t field(const std::string& mesh, const std::string& name, const std::string& dtype,
                      const nb::dict& options);
  std::uint32_t structure(const std::string& mesh, const std::string& variable, const std::string& dtype,
                          const std::string& order);
  void declare(const std::string& name, nb::handle value, nb::handle least, nb::handle greatest);
  nb::object value(const std::string& name);
  bool request(std::int64_t cycle, double time);
  bool wants(std::uint32_t field);
  void put(std::uint32_t field, const Sizes& start, nb::handle array, bool lend);
  std::unique_ptr<Memory> put_span(std::uint32_t field, const Sizes& start, const Sizes& count);
  void put_attribute(const std::string& name, const std::string& dtype, bool is_array, nb::bytes values,
                     std::vector<std::string> strings);
  void coprocess();
  void abandon();
  int finalize(std::int64_t timeout_ms);
  void lose();
  bool busy();
  bool closed() const { return ended_; }
  bool in_step();
  nb::dict statistics();
  void forget();  // after fork: the memory belongs to the parent

 private:
  Coprocessor& coprocessor();
  CoprocessStep& step();
  void end_step(void (*how)(CoprocessStep&));
  const Origin origin_;
  std::mutex mutex_;
  std::shared_ptr<Context> context_;          // outlives the coprocessor
  std::shared_ptr<Coprocessor> coprocessor_;  // spans hold it too, so that their memory stays mapped
  std::optional<CoprocessStep> step_;
  std::vector<std::shared_ptr<const Buffer>> lent_;
  std::unordered_map<std::uint32_t, Order> orders_;
  std::unordered_map<std::string, int> types_;  // of parameters, as in `declare`
  std::string name_;
  bool ended_ = false;
};

void bind_coprocessor(nb::module_& m);

}  // namespace penstock::python
