#include "api/render.h"

#include <charconv>
#include <cmath>
#include <csignal>
#include <cstring>
#include <ctime>

#include <boost/json.hpp>

#include "api/error_table.h"
#include "api/utf8.h"

namespace ramet::api {
namespace {

namespace json = boost::json;

// Microseconds are enough for milliseconds; longer numbers only look exact.
double rounded(double ms) { return std::isfinite(ms) ? std::round(ms * 1000) / 1000 : 0; }

json::value optional_time(const std::optional<int64_t>& ns) {
  if (!ns) return nullptr;
  return json::value(format_time(*ns));
}

json::object to_object(const std::map<std::string, std::string>& map) {
  json::object o;
  for (const auto& [key, value] : map) o[to_valid_utf8(key)] = to_valid_utf8(value);
  return o;
}

std::string octal(uint32_t mode) {
  char text[8];
  snprintf(text, sizeof text, "%04o", mode & 07777);
  return text;
}

// The last part of a path; "/" for the root.
std::string_view base_name(std::string_view path) {
  while (path.size() > 1 && path.ends_with('/')) path.remove_suffix(1);
  const size_t slash = path.rfind('/');
  return path.size() > 1 && slash != std::string_view::npos ? path.substr(slash + 1) : path;
}

}  // namespace

std::string format_time(int64_t ns) {
  int64_t seconds = ns / 1'000'000'000;
  int64_t rest = ns % 1'000'000'000;
  if (rest < 0) {
    rest += 1'000'000'000;
    seconds--;
  }
  const auto t = static_cast<time_t>(seconds);
  tm parts{};
  gmtime_r(&t, &parts);
  char text[64];
  const size_t n = strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  snprintf(text + n, sizeof text - n, ".%03dZ", static_cast<int>(rest / 1'000'000));
  return text;
}

std::string signal_name(uint32_t signal) {
  const char* name = sigabbrev_np(static_cast<int>(signal));
  return "SIG" + (name != nullptr ? std::string(name) : std::to_string(signal));
}

namespace {

void add_text(std::string& out, const json::value& value) {
  if (value.is_object()) {
    char separator = '{';
    for (const json::key_value_pair& pair : value.get_object()) {
      out += separator;
      separator = ',';
      out += json::serialize(pair.key());
      out += ':';
      add_text(out, pair.value());
    }
    out += separator == '{' ? "{}" : "}";
  } else if (value.is_array()) {
    char separator = '[';
    for (const json::value& entry : value.get_array()) {
      out += separator;
      separator = ',';
      add_text(out, entry);
    }
    out += separator == '[' ? "[]" : "]";
  } else if (value.is_double()) {
    char text[32];
    const auto [end, ec] = std::to_chars(text, text + sizeof text, value.get_double());
    out.append(text, end);
  } else {
    out += json::serialize(value);
  }
}

}  // namespace

std::string to_text(const json::value& value) {
  std::string out;
  add_text(out, value);
  return out;
}

json::object to_json(const host::SandboxInfo& s) {
  json::object o;
  o["id"] = s.id;
  o["template"] = s.template_name;
  o["state"] = host::state_name(s.state);
  if (!s.state_reason.empty()) o["state_reason"] = to_valid_utf8(s.state_reason);
  o["parent_id"] = s.parent_id ? json::value(*s.parent_id) : json::value(nullptr);
  o["family_id"] = s.family_id;
  o["depth"] = s.depth;
  o["created_at"] = format_time(s.created_at_ns);
  o["expires_at"] = optional_time(s.expires_at_ns);
  o["idle_seconds"] = s.idle_seconds;
  o["labels"] = to_object(s.labels);
  o["vcpus"] = s.vcpus;
  o["memory_mib"] = s.memory_mib;
  o["disk_bytes"] = s.disk_bytes;
  o["timing"] = json::object{{"total_ms", rounded(s.timing.total_ms)},
                             {"fork_ms", rounded(s.timing.fork_ms)},
                             {"identify_ms", rounded(s.timing.identify_ms)},
                             {"template_boot_ms", rounded(s.timing.template_boot_ms)}};
  return o;
}

json::object to_json(const host::SnapshotInfo& s) {
  json::object o;
  o["id"] = s.id;
  o["name"] = s.name.empty() ? json::value(nullptr) : json::value(s.name);
  o["sandbox_id"] = s.sandbox_id;
  o["template"] = s.template_name;
  o["cpu_model"] = to_valid_utf8(s.cpu_model);
  o["strict"] = s.strict;
  o["created_at"] = format_time(s.created_at_ns);
  o["expires_at"] = optional_time(s.expires_at_ns);
  o["labels"] = to_object(s.labels);
  o["vcpus"] = s.vcpus;
  o["memory_mib"] = s.memory_mib;
  o["disk_bytes"] = s.disk_bytes;
  return o;
}

json::object to_json(const host::SnapshotResult& r) {
  return {{"snapshot", to_json(r.info)},
          {"changed_pages", r.changed_pages},
          {"memory_chunks", r.memory_chunks},
          {"disk_chunks", r.disk_chunks},
          {"timing",
           {{"freeze_ms", rounded(r.timing.freeze_ms)},
            {"vcpu_stop_ms", rounded(r.timing.vcpu_stop_ms)},
            {"parent_pause_ms", rounded(r.timing.parent_pause_ms)},
            {"store_ms", rounded(r.timing.store_ms)}}}};
}

json::object to_json(const host::TreeNode& node) {
  json::object o = to_json(node.info);
  o["ram_diverged_bytes"] = node.ram_diverged_bytes;
  o["ram_own_bytes"] = node.ram_own_bytes;
  o["ram_share_bytes"] = node.ram_share_bytes;
  o["disk_own_bytes"] = node.disk_own_bytes;
  json::array children;
  for (const host::TreeNode& child : node.children) children.push_back(to_json(child));
  o["children"] = std::move(children);
  return o;
}

json::object to_json(const host::ForkResult& result, std::string_view request_id) {
  json::array children, failed, ready;
  for (const host::SandboxInfo& child : result.children) children.push_back(to_json(child));
  for (const host::ForkFailure& f : result.failed)
    failed.push_back(json::object{{"index", f.index}, {"error", error_object(f.error, request_id)}});
  for (const double ms : result.timing.ready_ms) ready.push_back(rounded(ms));
  json::object o;
  o["children"] = std::move(children);
  o["failed"] = std::move(failed);
  o["timing"] = json::object{{"freeze_ms", rounded(result.timing.freeze_ms)},
                             {"vcpu_stop_ms", rounded(result.timing.vcpu_stop_ms)},
                             {"parent_pause_ms", rounded(result.timing.parent_pause_ms)},
                             {"fork_ms", rounded(result.timing.fork_ms)},
                             {"ready_ms", std::move(ready)}};
  return o;
}

void add_exit(json::object& into, const host::ExitInfo& exit) {
  into["exit_code"] = exit.signal != 0 ? 128 + exit.signal : exit.code;
  into["signal"] = exit.signal != 0 ? json::value(signal_name(exit.signal)) : json::value(nullptr);
  into["timed_out"] = exit.timed_out;
  into["duration_ms"] = rounded(exit.duration_ms);
}

json::object to_json(const host::ProcessInfo& p) {
  json::object o;
  json::array argv;
  for (const std::string& a : p.argv) argv.push_back(json::value(to_valid_utf8(a)));
  o["pid"] = p.pid;
  o["argv"] = std::move(argv);
  o["user"] = to_valid_utf8(p.user);
  o["tag"] = to_valid_utf8(p.tag);
  o["pty"] = p.pty;
  o["running"] = p.running;
  o["started_at"] = format_time(p.started_at_ns);
  o["stdout_bytes"] = p.stdout_bytes;
  o["stderr_bytes"] = p.stderr_bytes;
  o["attached"] = p.attached;
  if (p.exit) {
    add_exit(o, *p.exit);
  } else {
    o["exit_code"] = nullptr;
  }
  return o;
}

json::object to_json(const host::FileInfo& f) {
  json::object o;
  o["name"] = to_valid_utf8(base_name(f.path));
  o["path"] = to_valid_utf8(f.path);
  o["type"] = host::file_type_name(f.type);
  o["size_bytes"] = f.size_bytes;
  o["mode"] = octal(f.mode);
  o["uid"] = f.uid;
  o["gid"] = f.gid;
  o["user"] = to_valid_utf8(f.user);
  o["group"] = to_valid_utf8(f.group);
  o["modified_at"] = format_time(f.mtime_ns);
  if (f.type == host::FileType::kSymlink) o["target"] = to_valid_utf8(f.symlink_target);
  return o;
}

json::object to_json(const host::TemplateInfo& t) {
  json::object files;
  for (const host::TemplateFile& f : t.files) files[f.name] = json::object{{"bytes", f.bytes}, {"sha256", f.sha256}};
  json::object o;
  o["name"] = t.name;
  o["kernel_release"] = to_valid_utf8(t.kernel_release);
  o["vcpus"] = t.vcpus;
  o["memory_mib"] = t.memory_mib;
  o["disk_bytes"] = t.disk_bytes;
  o["cmdline"] = to_valid_utf8(t.cmdline);
  o["files"] = std::move(files);
  o["digest"] = t.digest;
  json::object env;
  for (const auto& [key, value] : t.env) env[to_valid_utf8(key)] = to_valid_utf8(value);
  o["env"] = std::move(env);
  o["committed_at"] = format_time(t.committed_at_ns);
  o["status"] = t.status;
  if (!t.status_reason.empty()) o["status_reason"] = to_valid_utf8(t.status_reason);
  if (!t.started_from.empty()) o["started_from"] = t.started_from;
  return o;
}

json::object to_json(const host::ImageInfo& image) {
  return {
      {"name", image.name}, {"bytes", image.bytes}, {"stored_bytes", image.stored_bytes}, {"unique_bytes", image.unique_bytes}};
}

json::object to_json(const host::CommittedDisk& disk) {
  json::object o{{"image", to_json(disk.image)}, {"file_system", disk.clean ? "clean" : "as_after_a_crash"}};
  if (!disk.clean) o["reason"] = disk.why_not_clean;
  o["frozen_ms"] = disk.frozen_ms;
  return o;
}

json::object to_json(const host::ImageDiff& diff) {
  json::array ranges;
  for (const image::BlockRange& r : diff.ranges)
    ranges.push_back(json::object{{"offset", r.first * image::kBlockBytes}, {"length", r.count * image::kBlockBytes}});
  return {{"changed_bytes", diff.changed_blocks * image::kBlockBytes},
          {"changed_chunks", diff.changed_chunks},
          {"ranges", std::move(ranges)},
          {"truncated", diff.truncated}};
}

json::object to_json(const host::StoreReport& s) {
  return {{"images", s.images},
          {"template_disks", s.template_disks},
          {"packs", s.packs},
          {"pack_bytes", s.pack_bytes},
          {"chunks", s.chunks},
          {"cache", json::object{{"chunks", s.cached_chunks},
                                 {"bytes", s.cache_bytes},
                                 {"leased_bytes", s.cache_leased_bytes},
                                 {"max_bytes", s.cache_max_bytes}}},
          {"reads", json::object{{"readers", s.readers},
                                 {"asks", s.asks},
                                 {"fetched_bytes", s.fetched_bytes},
                                 {"distinct_frame_bytes", s.distinct_frame_bytes},
                                 {"filled_bytes", s.filled_bytes},
                                 {"local_bytes", s.local_bytes},
                                 {"remote_bytes", s.remote_bytes},
                                 {"checked_bytes", s.checked_bytes},
                                 {"failed", s.failed}}},
          {"remote", json::object{{"used", s.has_remote}, {"trouble", to_valid_utf8(s.remote_trouble)}}}};
}

json::object to_json(const host::HostReport& r) {
  json::array controllers, warnings;
  for (const std::string& c : r.cgroup.controllers) controllers.push_back(json::value(c));
  for (const std::string& w : r.warnings) warnings.push_back(json::value(to_valid_utf8(w)));
  json::object o;
  o["version"] = r.version;
  o["kernel"] = to_valid_utf8(r.kernel);
  o["cpus"] = r.cpus;
  o["state_dir"] = to_valid_utf8(r.state_dir);
  o["runtime_dir"] = to_valid_utf8(r.runtime_dir);
  o["kvm"] = json::object{{"usable", r.kvm.usable}, {"detail", to_valid_utf8(r.kvm.detail)}};
  o["cgroup"] = json::object{
      {"usable", r.cgroup.usable}, {"root", to_valid_utf8(r.cgroup.root)}, {"controllers", std::move(controllers)}};
  o["memory"] = json::object{{"total_bytes", r.memory_total_bytes},
                             {"available_bytes", r.memory_available_bytes},
                             {"reserved_bytes", r.memory_reserved_bytes}};
  o["disk"] = json::object{{"free_bytes", r.state_free_bytes}, {"immutable_overlays", r.immutable_overlays}};
  o["store"] = to_json(r.store);
  o["sandboxes_running"] = r.sandboxes_running;
  o["warnings"] = std::move(warnings);
  return o;
}

}  // namespace ramet::api
