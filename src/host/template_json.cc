#include <boost/json.hpp>

#include "host/ids.h"
#include "host/template_store.h"

namespace ramet::host {
namespace {

namespace json = boost::json;

tl::unexpected<Error> bad(const std::string& what) { return fail(ErrorKind::kInvalid, "template.json: " + what); }

Result<uint64_t> number(const json::object& o, const char* key, uint64_t low, uint64_t high) {
  const json::value* v = o.if_contains(key);
  uint64_t n = 0;
  if (v && v->is_int64() && v->get_int64() >= 0)
    n = static_cast<uint64_t>(v->get_int64());
  else if (v && v->is_uint64())
    n = v->get_uint64();
  else
    return bad(std::string("'") + key + "' must be a whole number");
  if (n < low || n > high)
    return bad(std::string("'") + key + "' is " + std::to_string(n) + ", it must be between " + std::to_string(low) + " and " +
               std::to_string(high));
  return n;
}

Result<std::string> text(const json::object& o, const char* key, size_t limit) {
  const json::value* v = o.if_contains(key);
  if (!v || !v->is_string()) return bad(std::string("'") + key + "' must be a string");
  if (v->get_string().size() > limit)
    return bad(std::string("'") + key + "' is longer than " + std::to_string(limit) + " bytes");
  return std::string(v->get_string());
}

constexpr uint64_t kSavedFormat = 2;  // a machine in the store, where an uploaded one has files

Result<std::map<std::string, std::string>> variables(const json::object& o) {
  std::map<std::string, std::string> out;
  const json::value* env = o.if_contains("env");
  if (!env) return out;
  if (!env->is_object()) return bad("'env' must be an object");
  for (const json::key_value_pair& kv : env->get_object()) {
    if (!kv.value().is_string()) return bad("'env' must hold strings");
    out.emplace(kv.key(), kv.value().get_string());
  }
  return out;
}

}  // namespace

std::string saved_template_json(const TemplateInfo& t) {
  json::object env;
  for (const auto& [key, value] : t.env) env[key] = value;
  return json::serialize(json::object{{"format", kSavedFormat},
                                      {"name", t.name},
                                      {"kernel_release", t.kernel_release},
                                      {"vcpus", t.vcpus},
                                      {"memory_mib", t.memory_mib},
                                      {"disk_bytes", t.disk_bytes},
                                      {"saved", t.saved},
                                      {"env", std::move(env)}});
}

Result<TemplateInfo> parse_template_json(std::string_view source) {
  json::error_code ec;
  const json::value root = json::parse(json::string_view(source.data(), source.size()), ec);
  if (ec || !root.is_object()) return bad("not a JSON object" + (ec ? " (" + ec.message() + ")" : std::string()));
  const json::object& o = root.get_object();
  TemplateInfo t;
  TRY_ASSIGN(const uint64_t format, number(o, "format", 1, 2));
  TRY_ASSIGN(t.name, text(o, "name", 64));
  TRY(check_template_name(t.name));
  TRY_ASSIGN(t.kernel_release, text(o, "kernel_release", 128));
  TRY_ASSIGN(const uint64_t vcpus, number(o, "vcpus", 1, 16));
  t.vcpus = static_cast<uint32_t>(vcpus);
  TRY_ASSIGN(t.memory_mib, number(o, "memory_mib", 64, 1u << 20));
  if (t.memory_mib % 2 != 0) return bad("'memory_mib' is " + std::to_string(t.memory_mib) + ", it must be even");
  TRY_ASSIGN(t.disk_bytes, number(o, "disk_bytes", 4096, uint64_t{1} << 44));
  if (t.disk_bytes % 4096 != 0) return bad("'disk_bytes' must be a multiple of 4096");
  if (o.contains("cmdline")) {
    TRY_ASSIGN(t.cmdline, text(o, "cmdline", 1024));
    for (const char c : t.cmdline)
      if (c < 0x20 || c > 0x7e) return bad("'cmdline' must be printable ASCII");
  }
  if (format == kSavedFormat) {
    TRY_ASSIGN(t.saved, text(o, "saved", 64));
    if (!is_id(t.saved)) return bad("'saved' names no snapshot");
    TRY_ASSIGN(t.env, variables(o));
    return t;
  }
  const json::value* files = o.if_contains("files");
  if (!files || !files->is_object()) return bad("'files' must be an object");
  for (const char* name : {"vmlinux", "initrd", "disk.img"}) {
    const json::value* f = files->get_object().if_contains(name);
    if (!f || !f->is_object()) return bad(std::string("'files' lacks '") + name + "'");
    TemplateFile file;
    file.name = name;
    TRY_ASSIGN(file.bytes, number(f->get_object(), "bytes", 1, uint64_t{1} << 44));
    TRY_ASSIGN(file.sha256, text(f->get_object(), "sha256", 64));
    if (file.sha256.size() != 64 || file.sha256.find_first_not_of("0123456789abcdef") != std::string::npos)
      return bad(std::string("'sha256' of '") + name + "' must be 64 lowercase hex digits");
    t.files.push_back(std::move(file));
  }
  if (t.files[2].bytes != t.disk_bytes)
    return bad("disk.img has " + std::to_string(t.files[2].bytes) + " bytes but 'disk_bytes' is " +
               std::to_string(t.disk_bytes));
  return t;
}

}  // namespace ramet::host
