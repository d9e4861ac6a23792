// rpc_generator SCHEMA.bfbs OUT.hpp FOLDER/STEM SOURCE.fbs ENCODING
//
// Writes the typed clients and server interfaces of the services that a FlatBuffers schema declares: rpc/channel.hpp says how
// they look. Reads the binary schema (flatc -b --schema) of SOURCE.fbs; the generated code includes "FOLDER/STEM_generated.h",
// which flatc makes with --gen-object-api, and "ENCODING", this module's encoding.hpp. Services of included schemas are left to
// their own headers.
#include <flatbuffers/reflection_generated.h>

#include <cctype>
#include <fstream>
#include <iostream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace {

// "ReadEncode" -> "read_encode"; "ListDHT" -> "list_dht".
std::string snake_case(const std::string& camel) {
  std::string out;
  for (std::size_t i = 0; i < camel.size(); ++i) {
    const auto c = static_cast<unsigned char>(camel[i]);
    const bool upper = std::isupper(c) != 0;
    const bool after_lower =
        i > 0 && std::isupper(static_cast<unsigned char>(camel[i - 1])) == 0 && camel[i - 1] != '_';
    const bool before_lower =
        i > 0 && i + 1 < camel.size() && std::islower(static_cast<unsigned char>(camel[i + 1])) != 0;
    if (upper && i > 0 && camel[i - 1] != '_' && (after_lower || before_lower)) out += '_';
    out += static_cast<char>(std::tolower(c));
  }
  return out;
}

// "penstock.pool.Store" -> "penstock::pool::Store".
std::string cpp_name(const std::string& dotted) {
  std::string out = "::";
  for (const char c : dotted) out += c == '.' ? std::string("::") : std::string(1, c);
  return out;
}

struct Name {
  std::string space;  // "penstock::pool"; empty: none
  std::string plain;
};

Name split(const std::string& dotted) {
  const auto dot = dotted.rfind('.');
  if (dot == std::string::npos) return {"", dotted};
  return {cpp_name(dotted.substr(0, dot)).substr(2), dotted.substr(dot + 1)};
}

struct Method {
  std::string name;
  std::string request, reply;  // C++ names of the tables, fully qualified
};

std::vector<Method> methods_of(const reflection::Service& service) {
  std::vector<Method> out;
  if (service.calls() == nullptr) return out;
  // In the order of the schema, which is the numbering: new methods go to the end.
  for (const auto* call : *service.calls()) {
    if (call->request()->is_struct() || call->response()->is_struct())
      throw std::runtime_error(call->name()->str() + ": requests and replies are tables");
    out.push_back(
        {call->name()->str(), cpp_name(call->request()->name()->str()), cpp_name(call->response()->name()->str())});
  }
  return out;
}

void write_service(std::ostream& out, const std::string& dotted, const std::vector<Method>& methods) {
  const Name name = split(dotted);
  if (!name.space.empty()) out << "namespace " << name.space << " {\n\n";

  out << "// Implement this and add it to a penstock::rpc::ServiceTable. Methods run on the engine thread.\n"
      << "class " << name.plain << "Service : public ::penstock::rpc::Service {\n public:\n"
      << "  static constexpr std::string_view service_name = \"" << dotted << "\";\n"
      << "  std::string_view name() const override { return service_name; }\n"
      << "  std::vector<std::string_view> methods() const override {\n    return {";
  for (std::size_t i = 0; i < methods.size(); ++i)
    out << (i == 0 ? "" : ", ") << "\"" << snake_case(methods[i].name) << "\"";
  out << "};\n  }\n\n";
  for (const Method& m : methods)
    out << "  virtual ::penstock::rpc::Task<" << m.reply << "T> " << snake_case(m.name)
        << "(::penstock::rpc::Call& call, " << m.request << "T request) = 0;\n";
  out << "\n  ::penstock::rpc::Task<std::vector<std::byte>> dispatch(::penstock::rpc::Call& call, std::uint32_t "
         "method,\n"
      << "                                                         std::vector<std::byte> request) final {\n"
      << "    switch (method) {\n";
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const Method& m = methods[i];
    out << "      case " << i << ": {\n"
        << "        auto decoded = ::penstock::rpc::decode<" << m.request << ">(request, \"" << m.name
        << " request\");\n"
        << "        std::vector<std::byte>().swap(request);\n"
        << "        const auto reply = co_await " << snake_case(m.name) << "(call, std::move(decoded));\n"
        << "        co_return ::penstock::rpc::encode<" << m.reply << ">(reply);\n"
        << "      }\n";
  }
  out << "      default:\n"
      << "        throw ::penstock::Error(::penstock::Errc::not_found, \"no such method\");\n    }\n  }\n};\n\n";

  out << "// Calls it. The Task methods on the engine thread, the start_ methods from any.\n"
      << "class " << name.plain << "Client {\n public:\n"
      << "  explicit " << name.plain << "Client(std::shared_ptr<::penstock::rpc::Channel> channel)"
      << " : channel_(std::move(channel)) {}\n"
      << "  const std::shared_ptr<::penstock::rpc::Channel>& channel() const { return channel_; }\n\n";
  for (std::size_t i = 0; i < methods.size(); ++i) {
    const Method& m = methods[i];
    const std::string types = m.request + ", " + m.reply;
    const std::string where = name.plain + "Service::service_name, " + std::to_string(i) + ", \"" + m.name + " reply\"";
    out << "  ::penstock::rpc::Task<" << m.reply << "T> " << snake_case(m.name) << "(" << m.request
        << "T request, ::penstock::rpc::CallOptions options = {}) {\n"
        << "    return ::penstock::rpc::call_typed<" << types << ">(channel_, " << where
        << ",\n        std::move(request), options);\n  }\n"
        << "  ::penstock::rpc::Future<" << m.reply << "T> start_" << snake_case(m.name) << "(const " << m.request
        << "T& request, ::penstock::rpc::CallOptions options = {}) {\n"
        << "    return ::penstock::rpc::start_typed<" << types << ">(*channel_, " << where
        << ",\n        request, options);\n  }\n";
  }
  out << "\n private:\n  std::shared_ptr<::penstock::rpc::Channel> channel_;\n};\n\n";
  if (!name.space.empty()) out << "}  // namespace " << name.space << "\n\n";
}

bool declared_in(const reflection::Service& service, const std::string& source) {
  if (service.declaration_file() == nullptr) return true;
  const std::string file = service.declaration_file()->str();
  const auto slash = [](const std::string& path) { return path.substr(path.rfind('/') + 1); };
  return slash(file) == slash(source);
}

std::string generate(const std::string& schema_file, const std::string& include, const std::string& source,
                     const std::string& encoding) {
  std::ifstream in(schema_file, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  flatbuffers::Verifier verifier(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  if (!reflection::VerifySchemaBuffer(verifier)) throw std::runtime_error(schema_file + " is no binary schema");
  const auto* schema = reflection::GetSchema(bytes.data());
  std::ostringstream out;
  out << "// Made by rpc_generator from " << source << ".\n#pragma once\n\n"
      << "#include <memory>\n#include <string_view>\n#include <utility>\n#include <vector>\n\n"
      << "#include \"" << include << "_generated.h\"\n#include \"" << encoding << "\"\n\n";
  std::size_t count = 0;
  if (schema->services() != nullptr) {
    for (const auto* service : *schema->services()) {
      if (!declared_in(*service, source)) continue;
      write_service(out, service->name()->str(), methods_of(*service));
      ++count;
    }
  }
  if (count == 0) throw std::runtime_error(source + " declares no rpc_service");
  return out.str();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    std::cerr << "usage: rpc_generator SCHEMA.bfbs OUT.hpp FOLDER/STEM SOURCE.fbs ENCODING\n";
    return 2;
  }
  try {
    const std::string text = generate(argv[1], argv[3], argv[4], argv[5]);
    std::ofstream out(argv[2], std::ios::binary);
    out << text;
    out.close();
    if (!out) throw std::runtime_error(std::string("cannot write ") + argv[2]);
  } catch (const std::exception& error) {
    std::cerr << "rpc_generator: " << error.what() << "\n";
    return 1;
  }
  return 0;
}
