#include "host/snapshot_details.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/clock.h"
#include "base/file.h"

namespace ramet::host {
namespace {

boost::json::object to_json(const std::map<std::string, std::string>& map) {
  boost::json::object o;
  for (const auto& [k, v] : map) o[k] = v;
  return o;
}

// Members of an object; of another type than wanted they are as if they were not there.
class Members {
 public:
  explicit Members(const boost::json::object& object) : object_(object) {}
  std::string text(const char* name) const {
    const boost::json::value* v = object_.if_contains(name);
    return v && v->is_string() ? std::string(v->get_string()) : std::string();
  }
  int64_t number(const char* name) const {
    const boost::json::value* v = object_.if_contains(name);
    return v && v->is_int64() ? v->get_int64() : 0;
  }
  bool flag(const char* name) const {
    const boost::json::value* v = object_.if_contains(name);
    return v && v->is_bool() && v->get_bool();
  }
  std::vector<uint32_t> numbers(const char* name) const {
    std::vector<uint32_t> out;
    const boost::json::value* v = object_.if_contains(name);
    if (!v || !v->is_array()) return out;
    for (const boost::json::value& one : v->get_array())
      if (one.is_int64() && one.get_int64() >= 0 && one.get_int64() <= UINT32_MAX)
        out.push_back(static_cast<uint32_t>(one.get_int64()));
    return out;
  }
  std::map<std::string, std::string> map(const char* name) const {
    std::map<std::string, std::string> out;
    const boost::json::value* v = object_.if_contains(name);
    if (!v || !v->is_object()) return out;
    for (const auto& kv : v->get_object())
      if (kv.value().is_string()) out.emplace(kv.key(), kv.value().get_string());
    return out;
  }

 private:
  const boost::json::object& object_;
};

}  // namespace

SnapshotDetails details_of(const SandboxInfo& info, const std::string& template_digest) {
  SnapshotDetails d;
  d.info.sandbox_id = info.id;
  d.info.template_name = info.template_name;
  d.info.created_at_ns = wall_ns();
  d.info.vcpus = info.vcpus;
  d.info.memory_mib = info.memory_mib;
  d.info.disk_bytes = info.disk_bytes;
  d.info.env = info.env;
  d.template_digest = template_digest;
  return d;
}

std::string cpu_model_here() {
  const Result<std::string> text = read_file("/proc/cpuinfo", 1u << 20);
  const size_t at = text ? text->find("model name") : std::string::npos;
  if (at == std::string::npos) return "unknown";
  const size_t begin = text->find(':', at) + 2, end = text->find('\n', at);
  return begin < end ? text->substr(begin, end - begin) : "unknown";
}

std::optional<int64_t> kept_until(uint64_t seconds) {
  constexpr uint64_t kLongest = 100ull * 365 * 86400;
  if (seconds == 0) return std::nullopt;
  return wall_ns() + static_cast<int64_t>(std::min(seconds, kLongest)) * 1'000'000'000;
}

std::string encode_details(const SnapshotDetails& d) {
  const SnapshotInfo& i = d.info;
  boost::json::object o;
  o["id"] = i.id;
  o["name"] = i.name;
  o["sandbox_id"] = i.sandbox_id;
  o["template"] = i.template_name;
  o["template_digest"] = d.template_digest;
  o["cpu_model"] = i.cpu_model;
  o["strict"] = i.strict;
  o["created_at_ns"] = i.created_at_ns;
  o["expires_at_ns"] = i.expires_at_ns.value_or(0);
  o["vcpus"] = static_cast<int64_t>(i.vcpus);
  o["memory_mib"] = static_cast<int64_t>(i.memory_mib);
  o["disk_bytes"] = static_cast<int64_t>(i.disk_bytes);
  o["labels"] = to_json(i.labels);
  o["env"] = to_json(i.env);
  o["paused"] = d.paused;
  o["time_left_ns"] = d.time_left_ns;
  boost::json::array& set = (o["working_set"] = boost::json::array()).get_array();
  for (const uint32_t chunk : d.working_set) set.push_back(static_cast<int64_t>(chunk));
  o["captured"] = d.captured;
  o["saved_as"] = d.saved_as;
  o["deleted"] = d.deleted;
  return boost::json::serialize(o);
}

Result<SnapshotDetails> decode_details(std::string_view json) {
  boost::system::error_code ec;
  const boost::json::value v = boost::json::parse(json, ec);
  if (ec || !v.is_object()) return fail(ErrorKind::kCorrupt, "the details of a snapshot are no JSON object");
  const Members m(v.get_object());
  SnapshotDetails d;
  SnapshotInfo& i = d.info;
  i.id = m.text("id");
  i.name = m.text("name");
  i.sandbox_id = m.text("sandbox_id");
  i.template_name = m.text("template");
  d.template_digest = m.text("template_digest");
  i.cpu_model = m.text("cpu_model");
  i.strict = m.flag("strict");
  i.created_at_ns = m.number("created_at_ns");
  if (const int64_t at = m.number("expires_at_ns"); at != 0) i.expires_at_ns = at;
  i.vcpus = static_cast<uint32_t>(m.number("vcpus"));
  i.memory_mib = static_cast<uint64_t>(m.number("memory_mib"));
  i.disk_bytes = static_cast<uint64_t>(m.number("disk_bytes"));
  i.labels = m.map("labels");
  i.env = m.map("env");
  d.paused = m.text("paused");
  d.time_left_ns = m.number("time_left_ns");
  d.working_set = m.numbers("working_set");
  d.captured = m.flag("captured");
  d.saved_as = m.text("saved_as");
  d.deleted = m.flag("deleted");
  return d;
}

}  // namespace ramet::host
